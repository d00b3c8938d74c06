"""Who lies within L hops: the paper's computation ego-subnetworks, exactly and in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from evergraph.graphs.graph import Graph
from evergraph.graphs.propagation import pattern, step_out

# Walks expanded at a time; about 200 MB while a block is worked on, whatever the graph.
BLOCK_WALKS = 1 << 24


def reach_blocks(
    graph: Graph, nodes: Tensor, *, hops: int, block_walks: int = BLOCK_WALKS
) -> Iterator[tuple[slice, scipy.sparse.csr_matrix]]:
    """Yield, block by block, which nodes each of ``nodes`` reaches within ``hops``, itself too.

    A block is a slice of ``nodes`` and a boolean CSR matrix [block, all nodes]. Blocks are cut so
    that none expands more than ``block_walks`` walks; an N x N matrix never exists.
    """
    adjacency = pattern(graph.indptr, graph.indices)
    wanted = nodes.cpu().numpy()
    for block in _cut(_walks(adjacency, hops)[wanted], block_walks):
        members = adjacency[wanted[block]] if hops else _identity_rows(wanted[block], adjacency)
        for _ in range(hops - 1):
            members = step_out(members, adjacency)
        yield block, members


def reach(graph: Graph, nodes: Tensor, *, hops: int) -> list[Tensor]:
    """Return the nodes within ``hops`` of each of ``nodes``, ascending.  [int64 [size], ...]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> reach(path, torch.tensor([0, 1]), hops=2)
    [tensor([0, 1, 2]), tensor([0, 1, 2, 3])]
    """
    found: list[Tensor] = []
    for _, members in reach_blocks(graph, nodes, hops=hops):
        members.sort_indices()
        rows = np.split(members.indices, members.indptr[1:-1])
        found.extend(torch.from_numpy(row.astype(np.int64)) for row in rows)
    return found


def reach_sizes(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return how many nodes lie within ``hops`` of each of ``nodes``.  int64 [nodes]"""
    sizes = np.empty(len(nodes), dtype=np.int64)
    for block, members in reach_blocks(graph, nodes, hops=hops):
        sizes[block] = np.diff(members.indptr)
    return torch.from_numpy(sizes)


def covered_nodes(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return which nodes lie within ``hops`` of at least one of ``nodes``.  bool [all nodes]

    One breadth-first step a hop for all of them together, so the cost does not depend on how many
    they are.
    """
    rows, columns = _entries(graph)
    return _spread(graph, nodes, hops, steps=(rows, columns))


def reaching_nodes(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return which nodes have at least one of ``nodes`` within ``hops``.  bool [all nodes]

    The other direction of ``covered_nodes``: on an undirected graph the two are the same.
    """
    rows, columns = _entries(graph)
    return _spread(graph, nodes, hops, steps=(columns, rows))


def _entries(graph: Graph) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return the row and the column of every adjacency entry."""
    indptr, indices = graph.indptr.cpu().numpy(), graph.indices.cpu().numpy()
    return np.repeat(np.arange(graph.num_nodes), np.diff(indptr)), indices


def _spread(
    graph: Graph,
    nodes: Tensor,
    hops: int,
    *,
    steps: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]],
) -> Tensor:
    """Return where one can be after at most ``hops`` of the steps from one node to another."""
    found = np.zeros(graph.num_nodes, dtype=bool)
    found[nodes.cpu().numpy()] = True
    for _ in range(hops):
        found[steps[1][found[steps[0]]]] = True
    return torch.from_numpy(found)


def _walks(adjacency: scipy.sparse.csr_matrix, hops: int) -> npt.NDArray[np.float64]:
    """Return how many walks of ``hops`` steps leave each node: what its row costs to expand."""
    counts = np.ones(adjacency.shape[0])
    weights = adjacency.astype(np.float64)
    for _ in range(hops):
        counts = weights @ counts
    return counts


def _cut(costs: npt.NDArray[np.float64], limit: int) -> Iterator[slice]:
    """Cut a sequence into slices whose summed cost stays below ``limit`` (one item at least)."""
    total = np.cumsum(costs)
    start = 0
    while start < len(costs):
        spent = total[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(total, spent + limit, side="right")))
        yield slice(start, stop)
        start = stop


def _identity_rows(
    nodes: npt.NDArray[np.int64], adjacency: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    ones = np.ones(len(nodes), dtype=bool)
    return scipy.sparse.csr_matrix(
        (ones, nodes, np.arange(len(nodes) + 1)), shape=(len(nodes), adjacency.shape[1])
    )
