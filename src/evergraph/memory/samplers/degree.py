"""The released code's stand-in for coverage."""

from __future__ import annotations

from torch import Tensor

from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers


@samplers.register
class DegreeSampler(WeightedSampler):
    """p_v ∝ 1 + in-degree, the 1-hop ego size: what the released code runs for Algorithm 1."""

    name = "degree"

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return how many nodes each candidate gathers from, itself included."""
        degrees = candidates.graph.degrees[candidates.nodes.to(candidates.graph.device)]
        return degrees.cpu().double() + 1
