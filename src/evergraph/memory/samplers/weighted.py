"""Samplers that draw nodes by weight: the paper's Algorithm 1, its approximation, and uniform."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.component import choice
from evergraph.graphs import reach_sizes
from evergraph.graphs.reach.reach import METHODS
from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class CoverageSampler(WeightedSampler):
    """Draws nodes in proportion to the size of their L-hop ego-subnetwork (Algorithm 1); mergeable.

    p_v ∝ R_c({v}). Replaying an embedding also trains its neighbours (the pseudo-training effect),
    so nodes that cover more of the graph are preferred. Over batches this is weighted reservoir
    sampling on stored ego sizes.

    Args:
        reach: how sizes are computed: "exact", "estimated" from HyperLogLog counters, or "auto":
            exact if that takes no more than about a minute (``reach_sizes``).
    """

    name = "coverage"
    aliases = ("weighted-reservoir",)

    reach: str = choice("auto", METHODS)

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return the number of nodes in each candidate's ego-subnetwork."""
        sizes = reach_sizes(
            candidates.graph,
            candidates.nodes,
            hops=candidates.hops,
            method=self.reach,
            resources=candidates.resources,
        )
        return sizes.double()


@samplers.register
class DegreeSampler(WeightedSampler):
    """Draws nodes in proportion to 1 + in-degree, the 1-hop ego size, as the released code does."""

    name = "degree"

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return 1 + the in-degree of each candidate."""
        degrees = candidates.graph.degrees[candidates.nodes.to(candidates.graph.device)]
        return degrees.cpu().double() + 1


@samplers.register
class UniformSampler(WeightedSampler):
    """Draws uniformly without replacement; over batches this is reservoir sampling."""

    name = "uniform"
    aliases = ("reservoir",)

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return ones."""
        return torch.ones(len(candidates), dtype=torch.float64)
