"""Coverage maximisation sampling, Algorithm 1 of the paper."""

from __future__ import annotations

from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.graphs import reach_sizes
from evergraph.graphs.reach.reach import METHODS
from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers


@samplers.register
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

    def __init__(self, *, reach: str = "auto") -> None:
        check_choice("reach", reach, METHODS)
        self.reach = reach

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
