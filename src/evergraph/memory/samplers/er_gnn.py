"""The samplers of ER-GNN: by class means, by coverage of the embedding space, by influence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from evergraph.core.component import number
from evergraph.memory.samplers.base import Budgets, Candidates, Sampler, samplers


@samplers.register
class MeanFeatureSampler(Sampler):
    """Keeps the embeddings nearest to their class mean (mean of features: iCaRL, ER-GNN)."""

    name = "mean-feature"
    aliases = ("mf",)

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        labels = candidates.labels.to(candidates.embeddings.device)
        classes, owner = labels.unique(return_inverse=True)
        sums = candidates.embeddings.new_zeros(len(classes), candidates.embeddings.shape[1])
        sums.index_add_(0, owner, candidates.embeddings)
        means = sums / torch.bincount(owner).unsqueeze(1)
        distances: Tensor = (candidates.embeddings - means[owner]).norm(dim=1)
        return distances.double().cpu()


# Candidates whose distances to all others are held at a time.
ROWS_PER_BLOCK = 1024


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingCoverageSampler(Sampler):
    """Coverage maximisation in embedding space (CM of ER-GNN, Zhou and Cao 2021).

    N(v) = {u : ‖h_u - h_v‖ < d, y_u ≠ y_v}; the nodes with the smallest N are kept, since they
    represent a region of their class only. Ties are broken at random.

    Args:
        radius: d as a share of the mean distance between candidates, so that one value fits
            any scale of the hidden layer; published runs use 0.5.
    """

    name = "embedding-coverage"
    aliases = ("cm",)

    radius: float = number(0.5, least=0.0)

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        """Return the number of near candidates of other classes, plus a fraction to break ties."""
        embeddings = candidates.embeddings
        labels = candidates.labels.to(embeddings.device)
        # The root of the mean squared distance between pairs: √2 times the total deviation.
        distance = (2 * embeddings.var(dim=0, unbiased=False).sum()).sqrt()
        radius = self.radius * float(distance if len(embeddings) else 0.0)
        counts = [
            ((torch.cdist(part, embeddings) < radius) & (own[:, None] != labels)).sum(1)
            for part, own in zip(
                embeddings.split(ROWS_PER_BLOCK), labels.split(ROWS_PER_BLOCK), strict=True
            )
        ]
        ties = torch.rand(len(candidates), dtype=torch.float64, generator=generator)
        return torch.cat(counts).double().cpu() + ties if counts else ties


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class InfluenceSampler(Sampler):
    """Keeps the nodes of largest influence g_vᵀ H^-1 g_v (IM of ER-GNN, Zhou and Cao 2021).

    An influence function measures how far the parameters move if a node's weight changes: H^-1 g_v.
    At the last layer a node's gradient is the outer product δ_v h_vᵀ of its residual and its hidden
    state; with H factored as E[δδᵀ] ⊗ E[hhᵀ], the influence is
    (δᵀ (E[δδᵀ] + εI)^-1 δ) · (hᵀ (E[hhᵀ] + εI)^-1 h): two solves for all nodes together. Without
    a model's residuals only the second factor is used: the leverage of an embedding.

    Args:
        damping: ε as a share of the mean of each factor's diagonal.
    """

    name = "influence"
    aliases = ("im",)

    damping: float = number(0.01, least=1e-8)

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        influence = self._lengths(candidates.embeddings.double())
        if candidates.residuals is not None:
            influence = influence * self._lengths(candidates.residuals.double())
        return -influence.cpu()

    def _lengths(self, rows: Tensor) -> Tensor:
        """Return rᵀ (E[rrᵀ] + εI)^-1 r for each row.  [n, d] -> [n]"""
        second = rows.t() @ rows / max(len(rows), 1)
        scale = second.diagonal().mean().clamp_min(1e-12)
        eye = torch.eye(len(second), dtype=rows.dtype, device=rows.device)
        solved = torch.linalg.solve(second + self.damping * scale * eye, rows.t())  # [d, n]
        lengths: Tensor = (rows * solved.t()).sum(1)
        return lengths
