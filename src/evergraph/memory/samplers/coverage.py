"""Coverage maximisation sampling, Algorithm 1 of the paper."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import reach_sizes
from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers


@samplers.register
class CoverageSampler(WeightedSampler):
    """Algorithm 1: p_v ∝ R_c({v}), the exact size of v's L-hop ego-subnetwork; mergeable.

    Replaying an embedding also trains its neighbours (the pseudo-training effect), so nodes that
    cover more of the graph are preferred. Over batches this is weighted reservoir sampling on
    stored ego sizes.
    """

    name = "coverage"
    aliases = ("weighted-reservoir",)

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return how many nodes each candidate's ego-subnetwork holds."""
        return reach_sizes(candidates.graph, candidates.nodes, hops=candidates.hops).double()
