"""The matrix that features are multiplied by."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from evergraph.core.errors import UnknownNameError
from evergraph.graphs.csr import csr_tensor, repeat
from evergraph.graphs.graph import Graph

Normalisation = Literal["symmetric", "row", "none"]


def normalised(
    graph: Graph, *, self_loops: bool = True, scheme: Normalisation = "symmetric"
) -> Tensor:
    """Return the graph's adjacency as a weighted ``torch.sparse_csr`` matrix  [nodes, nodes].

    symmetric: Â = D^-1/2 (A + I) D^-1/2, the paper's; D counts the entries of a row of A + I,
    also on a directed graph. row: D^-1 (A + I), a mean. none: A + I. ``self_loops=False`` leaves
    I out. Nodes without neighbours get weight 0.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> normalised(pair).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    left, right = scalings(graph.indptr.diff() + int(self_loops), scheme)
    own = None
    if self_loops:
        own = torch.arange(graph.num_nodes, dtype=torch.int32, device=graph.device)
    return written_out(graph.indptr, graph.indices, left=left, right=right, own=own)


def scalings(degrees: Tensor, scheme: Normalisation) -> tuple[Tensor, Tensor]:
    """Return what rows and what columns are multiplied by.  2 x float32 [nodes]

    degrees: how many entries each row holds, self-loops among them.  int [nodes]
    """
    ones = torch.ones(len(degrees), device=degrees.device)
    if scheme == "none":
        return ones, ones
    if scheme not in ("symmetric", "row"):
        raise UnknownNameError("normalisation", scheme, ("symmetric", "row", "none"))
    power = -0.5 if scheme == "symmetric" else -1.0
    inverse = degrees.clamp_min(1).float().pow(power)
    inverse = inverse.where(degrees > 0, torch.zeros_like(inverse))  # nothing flows out of there
    return inverse, inverse if scheme == "symmetric" else ones


def written_out(
    indptr: Tensor, indices: Tensor, *, left: Tensor, right: Tensor, own: Tensor | None
) -> Tensor:
    """Return L (A + sI) R as ``torch.sparse_csr``  [rows, columns].

    indptr: int32 [rows + 1], from 0; indices: int32 [entries]; left: float32 [rows]; right:
    float32 [columns]; own: every row's own column, None if s is 0.  int32 [rows]
    """
    if own is not None:
        indptr, indices = with_self_loops(indptr, indices, own)
    weights = repeat(left, indptr.diff()).mul_(right.index_select(0, indices))
    return csr_tensor(indptr, indices, weights, (len(left), len(right)))


def with_self_loops(indptr: Tensor, indices: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Append to each row its own column.  -> int32 [rows + 1], int32 [entries + rows]"""
    rows, device = len(own), indices.device
    indptr = indptr + torch.arange(rows + 1, dtype=torch.int32, device=device)
    places = (indptr[1:] - 1).long()  # the last of every row
    length = len(indices) + rows
    free = torch.ones(length, dtype=torch.bool, device=device).scatter_(0, places, False)
    full = torch.empty(length, dtype=torch.int32, device=device).scatter_(0, places, own)
    return indptr, full.masked_scatter_(free, indices)
