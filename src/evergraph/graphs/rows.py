"""Rows of an adjacency worked on block by block, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.mapped import page_out
from evergraph.graphs.csr import row_entries
from evergraph.graphs.cuts import cut_rows
from evergraph.graphs.graph import Graph

# Entries looked at together: about 100 MB while they are, whatever the graph.
BLOCK_ENTRIES = 1 << 22

Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class RowSweep:
    """The rows of an adjacency, some of which are worked on at a time.

    Attributes:
        indptr: [nodes + 1].
        indices: int32 [edges].
        mapped: whether they lie in files: then pages leave memory as soon as they were read.
    """

    indptr: Tensor
    indices: Tensor
    mapped: bool = False

    @classmethod
    def of(cls, graph: Graph) -> RowSweep:
        """Return the rows of a graph."""
        return cls(graph.indptr, graph.indices, graph.mapped)

    @property
    def plain(self) -> tuple[Tensor, Tensor]:
        """The two arrays as ordinary tensors, since here it is known when pages may go."""
        return self.indptr.as_subclass(Tensor), self.indices.as_subclass(Tensor)

    def blocks(self, rows: Tensor, step: Step) -> Iterator[tuple[slice, Tensor]]:
        """Yield what a step makes of some of the rows, and which they are.

        rows: int64 [m], ascending
        """
        indptr, indices = self.plain
        for part in cut_rows(indptr, rows, BLOCK_ENTRIES):
            some = rows[part]
            yield part, step(some)
            if self.mapped:
                page_out(indices[indptr[some[0]] : indptr[some[-1] + 1]])

    def collect(self, rows: Tensor, step: Step, *, width: int) -> Tensor:
        """Return what a step makes of all the rows.  uint8 [m, width]"""
        found = torch.empty(len(rows), width, dtype=torch.uint8, device=rows.device)
        for part, block in self.blocks(rows, step):
            found[part] = block
        return found

    def neighbours(self, rows: Tensor) -> Tensor:
        """Return who stands in some rows, one after the other.  int64 [m] -> int64 [entries]"""
        indptr, indices = self.plain
        _, entries = row_entries(indptr, rows)
        return indices.index_select(0, entries).long()


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
