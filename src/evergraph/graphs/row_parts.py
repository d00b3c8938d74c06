"""Some rows of a graph, cut out of the whole or put together again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from evergraph.core.mapped import MappedTensor, is_mapped, page_out, put
from evergraph.core.resources import Resources
from evergraph.graphs.csr import ROWS_AT_A_TIME, pointer_type, take_rows
from evergraph.graphs.graph import Graph
from evergraph.graphs.graph_folder import arrays_of, graph_of_arrays, names_in

# Arrays of pointers, and those that have a value for each entry; all others have a row a node.
POINTED = {
    "indptr": ("indices", "weights"),
    "relation_indptr": ("relation_indices", "relation_kinds", "relation_weights"),
}


def balanced_ranges(indptr: Tensor, count: int) -> list[slice]:
    """Cut rows into ``count`` ranges of about as many entries and rows in sum; some may be empty.

    >>> balanced_ranges(torch.tensor([0, 6, 7, 8, 9]), 2)  # the first row alone is half the work
    [slice(0, 1, None), slice(1, 4, None)]
    """
    rows = len(indptr) - 1
    first, last = int(indptr[0]), int(indptr[-1])

    def before(row: int) -> int:
        return int(indptr[row]) - first + row

    whole = last - first + rows
    cuts = [bisect_left(range(rows), whole * k // count, key=before) for k in range(count)]
    return [slice(start, stop) for start, stop in pairwise([*cuts, rows])]


def rows_of(graph: Graph, rows: slice) -> Graph:
    """Return some rows of a graph, neighbours with the numbers of the whole; nothing is copied.

    Only pointers are made anew where they do not begin at 0.
    """
    arrays = arrays_of(graph)
    spans = {
        name: slice(int(arrays[pointers][rows.start]), int(arrays[pointers][rows.stop]))
        for pointers, names in POINTED.items()
        for name in names
        if pointers in arrays
    }
    cut = {name: _cut(array, spans.get(name, rows)) for name, array in arrays.items()}
    for name in POINTED.keys() & arrays.keys():
        pointers = arrays[name][rows.start : rows.stop + 1].as_subclass(Tensor)
        cut[name] = pointers - pointers[0] if rows.start else pointers
    return graph_of_arrays(names_in(graph), cut, undirected=graph.undirected)


def _cut(array: Tensor, rows: slice) -> Tensor:
    if array.layout != torch.strided:
        return take_rows(array, torch.arange(rows.start, rows.stop))
    part = array[rows]
    return part.as_subclass(MappedTensor) if is_mapped(array) else part


def joined(parts: Sequence[Tensor], resources: Resources, *, pointers: bool) -> Tensor:
    """Return arrays one below the other; pointers go on where those before them end."""
    if pointers:
        return _joined_pointers(parts)
    length = sum(map(len, parts))
    whole = resources.array((length, *parts[0].shape[1:]), parts[0].dtype)
    start = 0
    for piece in _pieces(parts):
        put(whole, start, piece.as_subclass(Tensor))
        page_out(piece)
        start += len(piece)
    return whole


def _joined_pointers(parts: Sequence[Tensor]) -> Tensor:
    entries = sum(int(part[-1]) for part in parts)
    whole = torch.zeros(sum(map(len, parts)) - len(parts) + 1, dtype=pointer_type(entries))
    start, before = 0, 0
    for part in parts:
        stop = start + len(part) - 1
        whole[start + 1 : stop + 1] = part[1:].to(whole.dtype) + before
        start, before = stop, before + int(part[-1])
    return whole


def _pieces(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    for part in parts:
        for start in range(0, len(part), ROWS_AT_A_TIME):
            yield part[start : start + ROWS_AT_A_TIME]
