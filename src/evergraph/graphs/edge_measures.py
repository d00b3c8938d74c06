"""Measures of edges: homophily and curvature."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.graphs.csr import repeat
from evergraph.graphs.graph import Graph
from evergraph.graphs.propagation import pattern

Nodes = npt.NDArray[np.int64]
# Neighbours concatenated at a time; about 60 MB per block.
BLOCK_NEIGHBOURS = 1 << 22


def homophily(graph: Graph) -> float:
    """Return the share of edges whose two ends have the same class.

    The paper's h(G) = 1/|E| · Σ_(j,k)∈E 1(y_j = y_k). Edges with an unlabelled end are ignored,
    all others have equal weight; a graph without edges has homophily 0.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.tensor([0, 0, 1]))
    >>> homophily(path)
    0.5
    """
    # In memory as int32: labels are read in random order, which is slow from a file.
    labels = graph.labels.int()
    sweep = graph.sweep

    def compared(rows: Tensor) -> Tensor:
        row_labels = repeat(labels[rows], sweep.lengths(rows))
        labelled = (row_labels >= 0).nonzero().flatten()  # few, if few nodes have a class
        neighbour_labels = labels[sweep.run(rows)[labelled].long()]
        alike = neighbour_labels == row_labels[labelled]
        return torch.stack([alike.sum(), (neighbour_labels >= 0).sum()])

    counts = torch.zeros(2, dtype=torch.int64, device=graph.device)
    for _, block_counts in sweep.blocks(None, compared):
        counts += block_counts
    alike, total = counts.tolist()
    return alike / total if total else 0.0


def undirected_edges(graph: Graph) -> tuple[Nodes, Nodes, Nodes]:
    """Return the two ends of every undirected edge, the lower first, and the edge of each entry."""
    rows, columns = graph.edge_rows(), graph.indices.long()
    ends = np.sort(np.stack([rows.cpu().numpy(), columns.cpu().numpy()]), axis=0)  # [2, m]
    keys, edge = np.unique(ends[0] * graph.num_nodes + ends[1], return_inverse=True)
    return keys // max(graph.num_nodes, 1), keys % max(graph.num_nodes, 1), edge


def forman_curvature(graph: Graph) -> Tensor:
    """Return the augmented Forman curvature of every adjacency entry.  float32 [edges]

    F(u,v) = 4 - deg(u) - deg(v) + 3 · (triangles through the edge), Samal et al. 2018, with all
    edges and triangles of weight 1. The graph is treated as undirected: degrees and triangles are
    those of ``graph.to_undirected()``, and an entry has the value of its edge there.

    Curvature is high inside a community and low on bridges between hubs. Below, a triangle 0, 1, 2
    with node 3 attached to 2:

    >>> graph = Graph.from_edges(torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]]), features=torch.eye(4),
    ...                          labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> forman_curvature(graph)
    tensor([3., 2., 3., 2., 2., 2., 0., 0.])
    """
    undirected = graph.to_undirected()
    adjacency = pattern(undirected.sweep, torch.arange(undirected.num_nodes))
    first, second, edge = undirected_edges(graph)
    degrees = undirected.degrees.cpu().numpy()
    triangles = _shared_neighbours(adjacency, first, second) - 2  # the ends count themselves
    curvature = 4 - degrees[first] - degrees[second] + 3 * triangles  # [undirected edges]
    return torch.from_numpy(curvature[edge]).float().to(graph.device)


def _shared_neighbours(
    adjacency: scipy.sparse.csr_matrix, first: Nodes, second: Nodes
) -> npt.NDArray[np.int64]:
    """Return the number of entries that each pair of rows shares.  [pairs], [pairs] -> [pairs]"""
    sizes = np.diff(adjacency.indptr).astype(np.int64)
    total = np.cumsum(sizes[first] + sizes[second])
    cuts = np.searchsorted(total, np.arange(BLOCK_NEIGHBOURS, total[-1:].sum(), BLOCK_NEIGHBOURS))
    counts = np.empty(len(first), dtype=np.int64)
    for block in np.split(np.arange(len(first)), cuts):
        common = adjacency[first[block]].multiply(adjacency[second[block]])
        counts[block] = np.asarray(common.sum(axis=1)).reshape(-1)
    return counts
