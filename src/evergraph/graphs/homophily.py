"""How alike neighbours are."""

from __future__ import annotations

import torch

from evergraph.core.mapped import page_out
from evergraph.graphs.csr import repeat
from evergraph.graphs.cuts import cut
from evergraph.graphs.graph import Graph
from evergraph.graphs.induced import BLOCK_ENTRIES

_ROWS = 1 << 20  # cut into blocks at a time


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
    # In memory, in half the bytes: entries ask for labels in no order, which no file likes.
    labels = graph.labels.int()
    indices = graph.indices.as_subclass(torch.Tensor)
    for start in range(0, graph.num_nodes, _ROWS):
        starts = graph.indptr[start : start + _ROWS + 1].long()
        lengths = starts.diff()
        for rows in cut(lengths.cpu().double().numpy(), BLOCK_ENTRIES[graph.device.type]):
            entries = slice(int(starts[rows.start]), int(starts[rows.stop]))
            mine = repeat(labels[start : start + _ROWS][rows], lengths[rows])
            known = (mine >= 0).nonzero().flatten()  # few, in a graph of which few have a class
            theirs = labels[indices[entries][known].long()]
            total += int((theirs >= 0).sum())
            alike += int((theirs == mine[known]).sum())
            if graph.mapped:
                page_out(indices[entries])
    return alike / total if total else 0.0
