"""Distribution matching: synthetic vectors distributed as their class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.memory.samplers.base import Candidates, samplers
from evergraph.memory.samplers.condensing import BLOCK, CondensingSampler, averaging, spread


@samplers.register
class DistributionMatchingSampler(CondensingSampler):
    """Synthetic embeddings that match their class's mean, also through random layers (CaT, PUMA).

    Minimises Σ_c ‖mean_{v∈c} φ(e_v) - mean_{s∈c} φ(s)‖², a maximum mean discrepancy, where
    φ(e) = [z, relu(W z + b)], z = (e - mean) / deviation of all candidates, consists of the
    embedding itself and an untrained layer with normal W and b (Liu et al. 2023, CaT; 2024, PUMA;
    Zhao and Bilen 2023). The candidates' means are computed once.

    Args:
        features: width of the random layer.
        start, steps, lr: see ``CondensingSampler``.
    """

    name = "distribution-matching"

    def __init__(
        self, *, features: int = 256, start: str = "herding", steps: int = 50, lr: float = 0.1
    ) -> None:
        super().__init__(start=start, steps=steps, lr=lr)
        check_integer("features", features, least=0)
        self.features = features

    def distance(
        self, candidates: Candidates, labels: Tensor, *, generator: torch.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Return the squared distance of the vectors' class means from the candidates'."""
        expand = self._expansion(candidates.embeddings, generator=generator)
        classes = labels.unique()
        real = averaging(candidates.labels.to(labels.device), classes)
        parts = zip(real.split(BLOCK, dim=1), candidates.embeddings.split(BLOCK), strict=True)
        means = sum(weights @ expand(rows) for weights, rows in parts)
        own = averaging(labels, classes)
        return lambda vectors: (own @ expand(vectors) - means).square().sum()

    def _expansion(
        self, embeddings: Tensor, *, generator: torch.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Return φ.  [n, dims] -> [n, dims + features]"""
        mean, deviation = spread(embeddings)
        weights = torch.randn(embeddings.shape[1], self.features, generator=generator)
        biases = torch.randn(self.features, generator=generator)
        weights, biases = weights.to(embeddings), biases.to(embeddings)
        share = max(self.features, 1) ** -0.5  # both parts have equal weight

        def expand(rows: Tensor) -> Tensor:
            rows = (rows - mean) / deviation
            layer = torch.addmm(biases, rows, weights).relu()
            return torch.cat([rows, share * layer], dim=1)

        return expand
