"""The released code's approximation of coverage."""

from __future__ import annotations

from torch import Tensor

from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers


@samplers.register
class DegreeSampler(WeightedSampler):
    """Draws nodes in proportion to 1 + in-degree, the 1-hop ego size, as the released code does."""

    name = "degree"

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return 1 + the in-degree of each candidate."""
        degrees = candidates.graph.degrees[candidates.nodes.to(candidates.graph.device)]
        return degrees.cpu().double() + 1
