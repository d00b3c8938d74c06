"""ER-GNN's coverage: nodes far from those of other classes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from evergraph.core.checks import check_number
from evergraph.memory.samplers.base import Candidates, Sampler, samplers

# Candidates whose distances to all others are held at a time.
BLOCK = 1024


@samplers.register
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

    def __init__(self, *, radius: float = 0.5) -> None:
        check_number("radius", radius, least=0.0)
        self.radius = radius

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        """Return the number of near candidates of other classes, plus a fraction to break ties."""
        embeddings = candidates.embeddings
        labels = candidates.labels.to(embeddings.device)
        # The root of the mean squared distance between pairs: √2 times the total deviation.
        distance = (2 * embeddings.var(dim=0, unbiased=False).sum()).sqrt()
        radius = self.radius * float(distance if len(embeddings) else 0.0)
        counts = [
            ((torch.cdist(part, embeddings) < radius) & (own[:, None] != labels)).sum(1)
            for part, own in zip(embeddings.split(BLOCK), labels.split(BLOCK), strict=True)
        ]
        ties = torch.rand(len(candidates), dtype=torch.float64, generator=generator)
        return torch.cat(counts).double().cpu() + ties if counts else ties
