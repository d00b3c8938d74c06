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
    indptr, indices = _with_self_loops(graph) if self_loops else (graph.indptr, graph.indices)
    shape = (graph.num_nodes, graph.num_nodes)
    return csr_tensor(indptr, indices, _weights(indptr, indices, scheme), shape)


def _with_self_loops(graph: Graph) -> tuple[Tensor, Tensor]:
    """Append each node to its own row.  -> int32 [nodes + 1], int32 [edges + nodes]"""
    nodes = torch.arange(graph.num_nodes, dtype=torch.int32, device=graph.device)
    indptr = graph.indptr.clone()
    indptr[1:] += nodes + 1
    own = (indptr[1:] - 1).long()  # the last place of every row
    length = graph.num_edges + graph.num_nodes
    free = torch.ones(length, dtype=torch.bool, device=graph.device).scatter_(0, own, False)
    indices = torch.empty(length, dtype=torch.int32, device=graph.device).scatter_(0, own, nodes)
    return indptr, indices.masked_scatter_(free, graph.indices)


def _weights(indptr: Tensor, indices: Tensor, scheme: str) -> Tensor:
    """Return one weight per entry.  float32 [entries]"""
    degrees = indptr.diff()
    if scheme == "none":
        return torch.ones(len(indices), device=indices.device)
    if scheme not in ("symmetric", "row"):
        raise UnknownNameError("normalisation", scheme, ("symmetric", "row", "none"))
    power = -0.5 if scheme == "symmetric" else -1.0
    inverse = degrees.clamp_min(1).float().pow(power)  # empty rows hold no entry to weigh
    inverse = inverse.where(degrees > 0, torch.zeros_like(inverse))
    weights = repeat(inverse, degrees)
    return weights.mul_(inverse.index_select(0, indices)) if scheme == "symmetric" else weights
