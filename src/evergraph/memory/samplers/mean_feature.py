"""The nodes closest to their class mean."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from evergraph.memory.samplers.base import Candidates, Sampler, samplers


@samplers.register
class MeanFeatureSampler(Sampler):
    """Keeps the embeddings nearest to their class mean (mean of features: iCaRL, ER-GNN)."""

    name = "mean-feature"
    aliases = ("mf",)

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        """Return each embedding's distance from the mean of its class."""
        labels = candidates.labels.to(candidates.embeddings.device)
        classes, owner = labels.unique(return_inverse=True)
        sums = candidates.embeddings.new_zeros(len(classes), candidates.embeddings.shape[1])
        sums.index_add_(0, owner, candidates.embeddings)
        means = sums / torch.bincount(owner).unsqueeze(1)
        distances: Tensor = (candidates.embeddings - means[owner]).norm(dim=1)
        return distances.double().cpu()
