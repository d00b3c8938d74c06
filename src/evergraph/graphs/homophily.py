"""How alike neighbours are."""

from __future__ import annotations

import torch

from evergraph.core.mapped import page_out
from evergraph.graphs.csr import repeat
from evergraph.graphs.cuts import cut
from evergraph.graphs.graph import Graph
from evergraph.graphs.induced import BLOCK_ENTRIES


def homophily(graph: Graph) -> float:
    """Return the share of edges whose two ends have the same class.

    The paper's h(G) = 1/|E| · Σ_(j,k)∈E 1(y_j = y_k). Edges with an unlabelled end do not count,
    all others count the same, whatever they weigh; a graph without edges has homophily 0.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.tensor([0, 0, 1]))
    >>> homophily(path)
    0.5
    """
    alike = total = 0
    known = graph.labels >= 0
    lengths = graph.degrees
    for rows in cut(lengths.cpu().double().numpy(), BLOCK_ENTRIES[graph.device.type]):
        entries = slice(int(graph.indptr[rows.start]), int(graph.indptr[rows.stop]))
        columns = graph.indices[entries]
        owners = repeat(torch.arange(rows.start, rows.stop, device=graph.device), lengths[rows])
        counted = known[owners] & known[columns]
        total += int(counted.sum())
        alike += int((counted & (graph.labels[owners] == graph.labels[columns])).sum())
        if graph.mapped:
            page_out(columns)
    return alike / total if total else 0.0
