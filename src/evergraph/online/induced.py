"""Part of a growing graph as a graph of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED, Graph

if TYPE_CHECKING:
    from evergraph.online.growing_graph import GrowingGraph


def induced(graph: GrowingGraph, nodes: Tensor) -> Graph:
    """Return the graph of some nodes and the edges among them, renumbered in order.

    nodes: positions, ascending.  int64 [nodes]

    >>> from evergraph.online.growing_graph import GrowingGraph
    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> induced(path, torch.tensor([1, 2])).indices
    tensor([1, 0], dtype=torch.int32)
    """
    wanted = nodes.numpy()
    indptr, columns = graph.rows(nodes)
    owners = np.repeat(np.arange(len(nodes)), np.diff(indptr))
    places = np.searchsorted(wanted, columns)
    inside = places < len(nodes)
    inside[inside] = wanted[places[inside]] == columns[inside]
    counts = np.bincount(owners[inside], minlength=len(nodes))
    return Graph(
        torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)),
        torch.from_numpy(places[inside].astype(np.int32)),
        graph.features[nodes],
        torch.full((len(nodes),), UNLABELLED),
        undirected=graph.undirected,
    )
