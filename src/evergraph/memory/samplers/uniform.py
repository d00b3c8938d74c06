"""Uniform sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers


@samplers.register
class UniformSampler(WeightedSampler):
    """Draws uniformly without replacement; over batches this is reservoir sampling."""

    name = "uniform"
    aliases = ("reservoir",)

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return ones."""
        return torch.ones(len(candidates), dtype=torch.float64)
