"""Which undirected edge each adjacency entry stands for: curvature is worked out once an edge."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from evergraph.graphs.graph import Graph

Nodes = npt.NDArray[np.int64]


def undirected_edges(graph: Graph, entries: Tensor | None = None) -> tuple[Nodes, Nodes, Nodes]:
    """Return the two ends of every edge that some entries stand for, and each entry's edge.

    entries: optional int64 [m], which entries of ``graph.indices``; all of them unless given.
    -> int64 [edges], int64 [edges], int64 [m]; the first end has the lower number.

    >>> import torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.zeros(3, dtype=torch.long), undirected=True)
    >>> undirected_edges(path)
    (array([0, 1]), array([1, 2]), array([0, 0, 1, 1]))
    """
    rows, columns = graph.edge_rows(), graph.indices.long()
    if entries is not None:
        rows, columns = rows[entries], columns[entries]
    ends = np.sort(np.stack([rows.cpu().numpy(), columns.cpu().numpy()]), axis=0)  # [2, m]
    keys, edge = np.unique(ends[0] * graph.num_nodes + ends[1], return_inverse=True)
    return keys // max(graph.num_nodes, 1), keys % max(graph.num_nodes, 1), edge
