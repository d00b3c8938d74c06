"""The normalised adjacency matrix."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import check_choice
from evergraph.graphs.csr import RowSweep, csr_tensor, pointer_type, repeat
from evergraph.graphs.graph import Graph

Normalisation = Literal["symmetric", "row", "none"]
BLOCK_NODES = 1 << 20  # nodes whose degrees are processed at a time


def normalised(
    graph: Graph, *, self_loops: bool = True, scheme: Normalisation = "symmetric"
) -> Tensor:
    """Return the graph's adjacency as a weighted ``torch.sparse_csr`` matrix  [nodes, nodes].

    symmetric: Â = D^-1/2 (A + I) D^-1/2, the paper's; D holds the sums of weights in the rows of
    A + I, which are 1 without weights, also on a directed graph. row: D^-1 (A + I), a mean.
    none: A + I. ``self_loops=False`` omits I. Nodes without neighbours get weight 0.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> normalised(pair).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    left, right = graph_scalings(graph, self_loops=self_loops, scheme=scheme)
    every = torch.arange(graph.num_nodes, dtype=torch.int32, device=graph.device)
    own, weights = every if self_loops else None, graph.weights
    return written_out(
        graph.indptr, graph.indices, left=left, right=right, own=own, weights=weights
    )


def row_sums(graph: Graph) -> Tensor:
    """Return the sum of the weights in each row of A, or the number of entries without weights.

    Weights are added in float64, which holds all digits of sums of float32: the order makes no
    difference in float32.  -> int32 or float64 [nodes]
    """
    if graph.weights is None:
        return graph.indptr.diff()
    sums = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    if graph.device.type != "cpu":
        return sums.index_add_(0, graph.edge_rows(), graph.weights.double())
    sweep = RowSweep(graph.indptr, graph.weights, graph.mapped)

    def add_up(rows: Tensor) -> Tensor:
        lengths, weights = sweep.lengths(rows), sweep.run(rows)
        filled = lengths > 0  # numpy cannot sum empty rows
        added = torch.zeros(len(rows), dtype=torch.float64)
        if len(weights):
            first = (lengths.cumsum(0) - lengths)[filled].numpy()
            found = np.add.reduceat(weights.numpy(), first, dtype=np.float64)
            added[filled] = torch.from_numpy(found)
        return added

    for part, added in sweep.blocks(None, add_up):
        sums[part] = added
    return sums


def graph_scalings(
    graph: Graph, *, self_loops: bool, scheme: Normalisation
) -> tuple[Tensor, Tensor]:
    """Return the factors of rows and columns of a graph's A + sI.  2 x float32 [nodes]

    Rows are processed in blocks, into numpy's memory: at 10^8 nodes every temporary is as large as
    a feature column, and torch does not return it to the system at once on every platform.
    """
    own, nodes = int(self_loops), graph.num_nodes
    if graph.weights is not None or graph.device.type != "cpu" or nodes <= BLOCK_NODES:
        return scalings(row_sums(graph) + own, scheme)
    left = torch.from_numpy(np.empty(nodes, np.float32))
    for start in range(0, nodes, BLOCK_NODES):
        some = slice(start, min(start + BLOCK_NODES, nodes))
        degrees = graph.indptr[some.start : some.stop + 1].diff() + own
        left[some] = scalings(degrees, scheme)[0]
    return left, left if scheme == "symmetric" else torch.ones(nodes)


def scalings(degrees: Tensor, scheme: Normalisation) -> tuple[Tensor, Tensor]:
    """Return the factors of rows and columns.  2 x float32 [nodes]

    degrees: number of entries in each row, self-loops included, or their sum of weights.  [nodes]
    """
    check_choice("normalisation", scheme, get_args(Normalisation))
    ones = torch.ones(len(degrees) if scheme != "symmetric" else 0, device=degrees.device)
    if scheme == "none":
        return ones, ones
    # In place: at 10^8 nodes every temporary is as large as a feature column.
    inverse = degrees.to(torch.float32, copy=True).pow_(-0.5 if scheme == "symmetric" else -1.0)
    inverse.masked_fill_(degrees <= 0, 0.0)  # isolated nodes get weight 0
    return inverse, inverse if scheme == "symmetric" else ones


def written_out(
    indptr: Tensor,
    indices: Tensor,
    *,
    left: Tensor,
    right: Tensor,
    own: Tensor | None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return L (A + sI) R as ``torch.sparse_csr``  [rows, columns].

    indptr: [rows + 1], from 0; indices: int32 [entries]; left: float32 [rows]; right:
    float32 [columns]; own: every row's own column, None if s is 0.  int32 [rows]; weights: weights
    of A's entries, if any.  float32 [entries]
    """
    if own is not None:  # appended to each row, as its last entry
        kind = pointer_type(len(indices) + len(own))
        indptr = indptr.to(kind) + torch.arange(len(own) + 1, dtype=kind, device=indices.device)
        indices = with_last(indptr, indices, own)
        if weights is not None:
            weights = with_last(indptr, weights, torch.ones_like(left))
    values = repeat(left, indptr.diff()).mul_(right.index_select(0, indices))
    if weights is not None:
        values.mul_(weights)
    return csr_tensor(indptr, indices, values, (len(left), len(right)))


def with_last(indptr: Tensor, values: Tensor, last: Tensor) -> Tensor:
    """Append one value to the values of each row.  -> [entries + rows]

    indptr: start of each row in the result.  [rows + 1]; values: [entries]; last: [rows]
    """
    places = (indptr[1:] - 1).long()  # the last position of every row
    length, device = len(values) + len(last), values.device
    free = torch.ones(length, dtype=torch.bool, device=device).scatter_(0, places, False)
    full = torch.empty(length, dtype=values.dtype, device=device).scatter_(0, places, last)
    return full.masked_scatter_(free, values)
