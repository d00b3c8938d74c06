"""Rows of an adjacency, processed in blocks, in memory or in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.mapped import page_out
from evergraph.graphs.csr import cut_rows, row_entries
from evergraph.graphs.graph import Graph

# Entries processed together: about 100 MB, whatever the graph.
BLOCK_ENTRIES = 1 << 22
Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class RowSweep:
    """The rows of an adjacency, processed in blocks."""

    indptr: Tensor  # [nodes + 1]
    indices: Tensor  # int32 [edges]
    # whether they are in files: then pages leave memory as soon as they were read
    mapped: bool = False

    @classmethod
    def of(cls, graph: Graph) -> RowSweep:
        """Return the rows of a graph."""
        return cls(graph.indptr, graph.indices, graph.mapped)

    @property
    def plain(self) -> tuple[Tensor, Tensor]:
        """The two arrays as ordinary tensors, since pages are released explicitly here."""
        return self.indptr.as_subclass(Tensor), self.indices.as_subclass(Tensor)

    def blocks(self, rows: Tensor, step: Step) -> Iterator[tuple[slice, Tensor]]:
        """Yield the result of a step for each block of rows, ascending [m], and its slice."""
        for part in cut_rows(self.indptr.as_subclass(Tensor), rows, BLOCK_ENTRIES):
            some = rows[part]
            yield part, step(some)
            if self.mapped:
                page_out(self.run(some))

    def collect(self, rows: Tensor, step: Step, *, width: int) -> Tensor:
        """Return the result of a step for all the rows.  uint8 [m, width]"""
        found = torch.empty(len(rows), width, dtype=torch.uint8, device=rows.device)
        for part, block in self.blocks(rows, step):
            found[part] = block
        return found

    def lengths(self, rows: Tensor) -> Tensor:
        """Return the number of entries in some rows.  int64 [m] -> int64 [m]"""
        indptr = self.plain[0]
        return (indptr.index_select(0, rows + 1) - indptr.index_select(0, rows)).long()

    def neighbours(self, rows: Tensor) -> Tensor:
        """Return the neighbours in some rows, in sequence.  int64 [m] -> int64 [entries]"""
        indptr, indices = self.plain
        _, entries = row_entries(indptr, rows)
        return indices.index_select(0, entries).long()

    def run(self, rows: Tensor) -> Tensor:
        """Return the neighbours in consecutive rows, without a copy.  -> int32 [entries]"""
        indptr, indices = self.plain
        return indices[indptr[rows[0]] : indptr[rows[-1] + 1]]


def neighbour_sums(graph: Graph, values: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return Σ_{u into v} values_u for every node v, or for some.  float64 [nodes] -> float64 [m]

    The values are counts: below 2^53 their sums are exact, so the blocks do not matter.

    rows: the nodes, ascending; all by default.  int64 [m]

    >>> chain = Graph.from_edges(torch.tensor([[0, 1, 0], [1, 2, 2]]), features=torch.eye(3),
    ...                          labels=torch.zeros(3, dtype=torch.long))
    >>> neighbour_sums(chain, torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64))
    tensor([ 0.,  1., 11.], dtype=torch.float64)
    """
    sweep = RowSweep.of(graph)

    def add_up(some: Tensor) -> Tensor:
        lengths = sweep.lengths(some)
        near = sweep.run(some) if rows is None else sweep.neighbours(some)
        running = values.new_zeros(len(near) + 1)
        torch.cumsum(values.index_select(0, near), 0, out=running[1:])
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return running.index_select(0, ends).diff()

    wanted = torch.arange(graph.num_nodes, device=graph.device) if rows is None else rows
    sums = [found for _, found in sweep.blocks(wanted, add_up)]
    return torch.cat(sums) if sums else values.new_zeros(0)
