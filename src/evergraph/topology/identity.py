"""No topology at all."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import Graph, Smoother
from evergraph.topology.base import TopologyEncoder, topologies
from evergraph.topology.stepwise import Stepwise


@topologies.register
class Identity(Stepwise, TopologyEncoder):
    """E = X: the features as they are, to see what topology adds.

    ``hops`` is 0 whatever is asked for: such an embedding covers only its own node.
    """

    name = "identity"
    linear = True

    def __init__(self, *, hops: int = 0, self_loops: bool = True) -> None:
        super().__init__(hops=0, self_loops=self_loops)

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        return graph.features
