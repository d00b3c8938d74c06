"""How alike neighbours are."""

from __future__ import annotations

from evergraph.graphs.graph import Graph


def homophily(graph: Graph) -> float:
    """Return the share of edges whose two ends have the same class.

    The paper's h(G) = 1/|E| · Σ_(j,k)∈E 1(y_j = y_k). Edges with an unlabelled end do not count;
    a graph without edges has homophily 0.

    >>> import torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.tensor([0, 0, 1]))
    >>> homophily(path)
    0.5
    """
    ends = graph.labels[graph.edge_rows()], graph.labels[graph.indices]  # 2 x [edges]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    total = int(known.sum())
    return float((ends[0] == ends[1])[known].sum()) / total if total else 0.0
