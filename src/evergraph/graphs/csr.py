"""Compressed sparse rows: build, read and cut them, and go through them in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.mapped import is_mapped, page_out, put, shortened
from evergraph.core.resources import Resources
from evergraph.graphs.validation import check_features, check_real

MOST_INT32 = 2**31 - 1  # entries; beyond, row pointers have 64 bits
ROWS_AT_A_TIME = 1 << 16  # rows written to a file at a time
ROWS_CUT_TOGETHER = 1 << 20  # rows cut into blocks at a time; a graph may have 10^8
# A row costs as much as this many entries besides its own: this limits blocks of empty rows.
ROW_COST = 16
# Adjacency entries processed at a time: some 100 MB on a CPU. A GPU has more memory, and every
# block means a wait.
BLOCK_ENTRIES = {"cpu": 1 << 22, "cuda": 1 << 28}
Step = Callable[[Tensor], Tensor]


def build_csr(
    rows: Tensor, columns: Tensor, weights: Tensor | None, nodes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sort pairs into CSR; the last of duplicates counts, and weight 0 means no edge.

    rows, columns: int64 [edges]; weights: float32 [edges], all 1 if None
    -> [nodes + 1], int32 [entries], float32 [entries]

    >>> build_csr(torch.tensor([0, 1, 0, 1]), torch.tensor([1, 0, 1, 1]),
    ...           torch.tensor([2., 4., 3., 0.]), 2)
    (tensor([0, 1, 2], dtype=torch.int32), tensor([1, 0], dtype=torch.int32), tensor([3., 4.]))
    """
    keys = rows * nodes + columns
    if weights is None:
        keys = torch.unique(keys)
    else:
        keys, order = keys.sort(stable=True)
        is_last = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
        torch.ne(keys[1:], keys[:-1], out=is_last[:-1])  # the last of each pair
        is_last &= weights[order] > 0
        keys, weights = keys[is_last], weights[order[is_last]]
    size = max(nodes, 1)
    return row_pointers(keys // size, nodes), (keys % size).int(), weights


def adjacency_of(
    edge_index: Tensor, weights: Tensor | None, nodes: int, *, undirected: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (source, target) pairs as CSR, row by target; self-loops are dropped.

    edge_index: integer [2, edges]; weights: float32 [edges]; the result is as of ``build_csr``.
    """
    sources, targets = edge_index[0].long(), edge_index[1].long()
    distinct = sources != targets
    sources, targets = sources[distinct], targets[distinct]
    weights = None if weights is None else weights[distinct]
    if undirected and weights is not None:
        # Each edge stands next to its reverse, so that the weight of the last edge listed counts.
        doubled_sources = torch.stack([sources, targets], 1).flatten()
        targets = torch.stack([targets, sources], 1).flatten()
        sources = doubled_sources
        weights = weights.repeat_interleave(2)
    elif undirected:
        sources, targets = torch.cat([sources, targets]), torch.cat([targets, sources])
    return build_csr(targets, sources, weights, nodes)


def row_pointers(rows: Tensor, nodes: int) -> Tensor:
    """Return the start of each row, given the row of every entry.  [edges] -> [nodes + 1]"""
    return pointers_of(torch.bincount(rows, minlength=nodes))


def pointers_of(lengths: Tensor) -> Tensor:
    """Return the start of each row, given its number of entries.  int64 [n] -> [n + 1]

    >>> pointers_of(torch.tensor([2, 0, 1]))
    tensor([0, 2, 2, 3], dtype=torch.int32)
    """
    ends = lengths.cumsum(0)
    entries = int(ends[-1]) if len(ends) else 0
    indptr = torch.zeros(len(ends) + 1, dtype=pointer_type(entries), device=lengths.device)
    indptr[1:] = ends
    return indptr


def pointer_type(entries: int) -> torch.dtype:
    """Return the smallest integer type that counts this many entries."""
    return torch.int32 if entries <= MOST_INT32 else torch.int64


def row_entries(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for every entry of some rows of a CSR matrix, its row among them and its position.

    indptr: [n + 1]; rows: [m]; -> int64 [entries] each
    """
    starts = indptr[rows].long()
    lengths = indptr[rows + 1].long() - starts
    owners = repeat(torch.arange(len(rows), device=rows.device), lengths)
    before = lengths.cumsum(0) - lengths
    entries = torch.arange(len(owners), device=rows.device) + (starts - before)[owners]
    return owners, entries


def in_groups(groups: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return an order group by group, and how many of its group come before each of it.

    groups: of all positions, int64 [n]; order: positions, int64 [n] -> int64 [n] each

    >>> in_groups(torch.tensor([1, 0, 1]), torch.tensor([2, 1, 0]))
    (tensor([1, 2, 0]), tensor([0, 0, 1]))
    """
    order = order[groups[order].argsort(stable=True)]
    counts = torch.bincount(groups)
    starts = counts.cumsum(0) - counts
    return order, torch.arange(len(order), device=order.device) - starts[groups[order]]


def first_of_each_row(owners: Tensor, keys: Tensor, count: int) -> Tensor:
    """Return the entries with the ``count`` smallest keys in each row, row by row.

    owners: the row of every entry.  int64 [entries]; keys: [entries]; -> int64 [kept]
    """
    order, rank = in_groups(owners, keys.argsort(stable=True))
    return order[rank < count]


def repeat(values: Tensor, counts: Tensor) -> Tensor:
    """Return each value ``counts`` times over.  [n], [n] -> [sum of counts]"""
    if values.device.type == "cpu":  # several times as fast as torch's own on a CPU
        return torch.from_numpy(np.repeat(values.numpy(), counts.numpy()))
    return torch.repeat_interleave(values, counts)


def take_rows(matrix: Tensor, rows: Tensor, *, resources: Resources | None = None) -> Tensor:
    """Return the given rows of a dense or CSR matrix.  [n, d], [m] -> [m, d]

    resources: dense rows that do not fit in memory are written to a file.
    """
    shape = (len(rows), matrix.shape[1])
    if matrix.layout != torch.strided:
        owners, entries = row_entries(matrix.crow_indices(), rows)
        columns, values = matrix.col_indices()[entries], matrix.values()[entries]
        return csr_tensor(row_pointers(owners, len(rows)), columns, values, shape)
    size = len(rows) * matrix.shape[1] * matrix.element_size()
    if resources is None or matrix.device.type != "cpu" or resources.fits(size):
        return matrix[rows]
    taken = resources.array(shape, matrix.dtype)
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        put(taken, start, matrix[rows[start : start + ROWS_AT_A_TIME]])
    return taken


def stacked(first: Tensor, second: Tensor, *, resources: Resources) -> Tensor:
    """Return two dense matrices stacked, in a file if the first is in one."""
    if not is_mapped(first):
        return torch.cat([first, second])
    result = resources.array((len(first) + len(second), first.shape[1]), first.dtype)
    for start in range(0, len(first), ROWS_AT_A_TIME):
        part = slice(start, min(start + ROWS_AT_A_TIME, len(first)))
        put(result, start, first[part])
        page_out(first[part])
    put(result, len(first), second)
    return result


@contextmanager
def quietly_sparse() -> Iterator[None]:
    """Suppress torch's warning that CSR tensors are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        yield


def as_csr(matrix: Tensor) -> Tensor:
    """Return a matrix as float32 ``torch.sparse_csr`` with the shortest possible indices."""
    with quietly_sparse():
        if matrix.layout in (torch.sparse_bsr, torch.sparse_bsc):  # torch has no way from blocks
            matrix = matrix.to_sparse()
        csr = matrix if matrix.layout == torch.sparse_csr else matrix.to_sparse_csr()
    return csr_tensor(csr.crow_indices(), csr.col_indices(), csr.values().float(), tuple(csr.shape))


def as_features(matrix: Tensor, nodes: int) -> Tensor:
    """Return features as float32, dense or CSR; raise unless every node has a row of finite ones."""
    check_real(matrix)
    if matrix.layout not in (torch.strided, torch.sparse_csr):
        matrix = as_csr(matrix)
    matrix = matrix.float() if matrix.dtype != torch.float32 else matrix
    check_features(matrix, nodes)
    return matrix


def csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Assemble a ``torch.sparse_csr`` matrix from valid parts, without checks.

    Pointers and columns get one type, as torch's products require: int32 if that counts all
    entries and columns, whatever their own type.
    """
    index_type = pointer_type(max(len(indices), shape[1]))
    indptr, indices = indptr.to(index_type), indices.to(index_type)
    with quietly_sparse():
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)


def as_scipy(matrix: Tensor) -> scipy.sparse.csr_matrix:
    """Return a CSR tensor as a SciPy matrix that shares its memory."""
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return scipy.sparse.csr_matrix(tuple(part.numpy() for part in parts), shape=matrix.shape)


def densify(features: Tensor) -> Tensor:
    """Return the features as a dense matrix (themselves if they are dense)."""
    if features.layout == torch.strided:
        return features
    if features.device.type != "cpu":
        return features.to_dense()
    return torch.from_numpy(as_scipy(features).toarray())  # four times as fast as ``to_dense``


def cut(costs: npt.NDArray[np.float64], limit: float) -> Iterator[slice]:
    """Cut a sequence into slices whose summed cost stays below ``limit`` (at least one item each).

    >>> list(cut(np.array([3.0, 1.0, 9.0, 2.0]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    total = np.cumsum(costs)
    start = 0
    while start < len(costs):
        spent = total[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(total, spent + limit, side="right")))
        yield slice(start, stop)
        start = stop


def induced_adjacency(
    indptr: Tensor,
    indices: Tensor,
    nodes: Tensor,
    *,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    groups: Tensor | None = None,
    resources: Resources | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the adjacency among ``nodes``, numbered in the given order, and its weights.

    weights: of the entries, if any.  float32 [edges]; keep: entries to keep, if not all.  bool
    [edges]; groups: only entries within a group are kept.  [all nodes]
    -> [nodes + 1], int32 [entries], float32 [entries]
    """
    device = indptr.device
    resources = Resources() if resources is None else resources
    new_number = torch.full((len(indptr) - 1,), -1, dtype=torch.int32, device=device)
    new_number[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=device)
    lengths = indptr[nodes + 1].long() - indptr[nodes].long()

    def empty_entries(dtype: torch.dtype) -> Tensor:
        size = int(lengths.sum())
        if device.type == "cpu":
            return resources.array((size,), dtype)
        return torch.empty(size, dtype=dtype, device=device)

    columns = empty_entries(torch.int32)
    new_weights = None if weights is None else empty_entries(weights.dtype)
    counts = torch.empty(len(nodes), dtype=torch.int64, device=device)
    filled = 0
    for block in cut(lengths.cpu().double().numpy(), BLOCK_ENTRIES[device.type]):
        owners, entries = row_entries(indptr, nodes[block])
        neighbours = indices.as_subclass(Tensor).index_select(0, entries)
        new_columns = new_number.index_select(0, neighbours)
        selected = new_columns >= 0
        if keep is not None:
            selected &= keep[entries]
        if groups is not None:
            selected &= groups[neighbours] == groups[nodes[block]][owners]
        new_columns, owners = new_columns[selected], owners[selected]
        counts[block] = torch.bincount(owners, minlength=len(counts[block]))
        put(columns, filled, new_columns)
        if weights is not None and new_weights is not None:
            put(new_weights, filled, weights.as_subclass(Tensor).index_select(0, entries[selected]))
        for array in (indices, weights):
            # Pages that were read need not stay in memory.
            if array is not None and is_mapped(array) and len(entries):
                page_out(array[int(entries.min()) : int(entries.max()) + 1])
        filled += len(new_columns)
    pointers = pointers_of(counts)
    columns = shortened(columns, filled)
    new_weights = None if new_weights is None else shortened(new_weights, filled)
    if len(nodes) < 2 or bool((nodes[1:] > nodes[:-1]).all()):  # columns keep their order
        return pointers, columns, new_weights
    rows = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
    new_weights = None if new_weights is None else new_weights.as_subclass(Tensor)
    return build_csr(rows, columns.long(), new_weights, len(nodes))


@dataclass(frozen=True, eq=False)
class RowSweep:
    """The rows of an adjacency, processed in blocks."""

    indptr: Tensor  # [nodes + 1]
    indices: Tensor  # int32 [edges], or other values of the entries
    # whether they are in files: then pages leave memory as soon as they were read
    mapped: bool = False

    @property
    def plain(self) -> tuple[Tensor, Tensor]:
        """The two arrays as ordinary tensors, since pages are released explicitly here."""
        return self.indptr.as_subclass(Tensor), self.indices.as_subclass(Tensor)

    def on_cpu(self) -> RowSweep:
        """Return the rows in main memory (itself if they are there, or in files)."""
        if self.indices.device.type == "cpu":
            return self
        return RowSweep(self.indptr.cpu(), self.indices.cpu())

    def blocks(self, rows: Tensor | None, step: Step) -> Iterator[tuple[slice, Tensor]]:
        """Yield the result of a step for each block of rows, and its slice.

        rows: ascending, int64 [m]; all if None, which then need not fit into memory together.
        """
        count = len(self.indptr) - 1 if rows is None else len(rows)
        for start in range(0, count, ROWS_CUT_TOGETHER):
            stop = min(start + ROWS_CUT_TOGETHER, count)
            if rows is None:
                block_rows = torch.arange(start, stop, device=self.indices.device)
            else:
                block_rows = rows[start:stop]
            costs = self.lengths(block_rows).cpu().double().numpy() + ROW_COST
            for part in cut(costs, BLOCK_ENTRIES["cpu"]):
                yield slice(start + part.start, start + part.stop), step(block_rows[part])
                if self.mapped:
                    page_out(self.run(block_rows[part]))

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


def neighbour_sums(sweep: RowSweep, values: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return Σ_{u into v} values_u for every node v, or for some.  float64 [nodes] -> float64 [m]

    The values are counts: below 2^53 their sums are exact, so the blocks do not matter.

    rows: the nodes, ascending; all by default.  int64 [m]

    >>> into_two = RowSweep(torch.tensor([0, 0, 1, 3]), torch.tensor([0, 0, 1]).int())
    >>> neighbour_sums(into_two, torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64))
    tensor([ 0.,  1., 11.], dtype=torch.float64)
    """

    def add_up(block: Tensor) -> Tensor:
        lengths = sweep.lengths(block)
        sources = sweep.run(block) if rows is None else sweep.neighbours(block)
        running = values.new_zeros(len(sources) + 1)
        torch.cumsum(values.index_select(0, sources), 0, out=running[1:])
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return running.index_select(0, ends).diff()

    sums = [block_sums for _, block_sums in sweep.blocks(rows, add_up)]
    return torch.cat(sums) if sums else values.new_zeros(0)
