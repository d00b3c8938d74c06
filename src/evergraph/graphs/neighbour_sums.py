"""Sums over neighbours, a slice of the adjacency at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs.graph import Graph
from evergraph.graphs.row_sweep import RowSweep


def neighbour_sums(graph: Graph, values: Tensor) -> Tensor:
    """Return Σ_{u into v} values_u for every node v.  float64 [nodes] -> float64 [nodes]

    The values are counts: below 2^53 their sums are exact, so nothing depends on how it is cut.

    >>> chain = Graph.from_edges(torch.tensor([[0, 1, 0], [1, 2, 2]]), features=torch.eye(3),
    ...                          labels=torch.zeros(3, dtype=torch.long))
    >>> neighbour_sums(chain, torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64))
    tensor([ 0.,  1., 11.], dtype=torch.float64)
    """
    sweep = RowSweep.of(graph)
    indptr, indices = sweep.plain

    def add_up(rows: Tensor) -> Tensor:
        ends = indptr[rows[0] : rows[-1] + 2].long()
        near = indices[ends[0] : ends[-1]]
        running = values.new_zeros(len(near) + 1)
        torch.cumsum(values.index_select(0, near), 0, out=running[1:])
        return running.index_select(0, ends - ends[0]).diff()

    everyone = torch.arange(graph.num_nodes, device=graph.device)
    sums = [found for _, found in sweep.blocks(everyone, add_up)]
    return torch.cat(sums) if sums else torch.zeros_like(values)
