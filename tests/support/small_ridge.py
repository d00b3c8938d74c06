"""The closed form of a head, written down from its definition."""

import torch


def ridge(features: torch.Tensor, labels: torch.Tensor, share: float) -> torch.Tensor:
    """V, written down from the definition: scatter within classes pooled, every mean once."""
    features = features.double()
    classes = labels.unique().tolist()
    means = torch.stack([features[labels == c].mean(0) for c in classes])
    within = torch.cat([features[labels == c] - means[c] for c in classes])
    matrix = len(classes) / len(labels) * within.t() @ within + means.t() @ means
    matrix += share * matrix.diagonal().mean() * torch.eye(len(matrix))
    return torch.linalg.solve(matrix, means.t()).float()
