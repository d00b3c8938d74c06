"""R_c of the paper."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import Graph, covered_nodes


def coverage_ratio(graph: Graph, nodes: Tensor, *, hops: int) -> float:
    """Return R_c(V_s) = |∪_{v∈V_s} ego(v)| / |V|: the share of nodes within reach of ``nodes``.

    >>> import torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> coverage_ratio(path, torch.tensor([0]), hops=1)
    0.5
    """
    return float(covered_nodes(graph, nodes, hops=hops).float().mean())
