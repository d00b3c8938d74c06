"""The nodes around a few, found without a look at the rest of the graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from evergraph.graphs.csr import row_entries
from evergraph.graphs.graph import Graph


def nodes_around(
    graph: Graph, nodes: Tensor, *, hops: int, there: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return which nodes lie within ``hops`` of some, by way of such as are there.  int64 [found]

    It takes as long as the rows of what is found, however large the graph. The same nodes as
    ``covered_nodes`` of the subgraph of those that are there, ascending.

    nodes: int64 [n], ascending, all of them there; there: which of some nodes are.
    int64 [n] -> bool [n]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> nodes_around(path, torch.tensor([1]), hops=2, there=lambda nodes: nodes != 0)
    tensor([1, 2, 3])
    """
    found = layer = nodes
    for _ in range(hops):
        _, entries = row_entries(graph.indptr, layer.to(graph.device))
        near = graph.indices.as_subclass(Tensor).index_select(0, entries).cpu().long().unique()
        near = near[there(near)]
        layer = near[~torch.isin(near, found)]
        if not len(layer):
            break
        found = torch.cat([found, layer]).sort().values
    return found
