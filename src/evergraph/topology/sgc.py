"""Strategy S1 of the paper, and the identity."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import Graph, Smoother, walk
from evergraph.topology.base import Stepwise, TopologyEncoder, topologies


@topologies.register
class SGC(Stepwise, TopologyEncoder):
    """Smooths the features L times: E = Â^L X (S1; simple graph convolution, Wu et al. 2019).

    >>> import torch
    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> SGC(hops=1).encode(pair)  # each node gets the mean of both
    tensor([[2.0000],
            [2.0000]])
    """

    name = "sgc"
    linear = True

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        embeddings = graph.features
        for step in walk(adjacency, graph.features, hops=self.hops):
            embeddings = step
        return embeddings


@topologies.register
class Identity(Stepwise, TopologyEncoder):
    """Leaves the features unchanged, E = X, to measure what topology adds.

    ``hops`` is always 0, since such an embedding covers only its own node.
    """

    name = "identity"
    linear = True

    def __init__(self, *, hops: int = 0, self_loops: bool = True) -> None:
        super().__init__(hops=0, self_loops=self_loops)

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        return graph.features
