"""One pass over the adjacency that weighs, adds and scales, compiled by numba.

Imported only where numba is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np
from numba import njit
from numpy.typing import NDArray

from evergraph.graphs.kernels.compiled import compiled
from evergraph.graphs.kernels.lanes import load, prefetch, store, times, times_plus, zeros

Code = Callable[..., Any]

# How many entries ahead a neighbour's features are asked for.
AHEAD = 8
# Rows whose tiles are all summed before the next rows begin: what the tiles share is near then.
ROWS = 16
# The sum of so many columns fits into half of the machine's vector registers.
WIDEST = 128 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 64


class Rows(NamedTuple):
    """Some rows of L (A + sI) R: see ``Smoother``.

    ``own`` is how far a row's own column lies behind its number, below 0 without self-loops.
    """

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    left: NDArray[np.float32]
    right: NDArray[np.float32]
    own: int


class Flat(NamedTuple):
    """A matrix as a flat array in which a row begins every ``stride`` values."""

    values: NDArray[np.float32]
    stride: int


def _tile(count: int) -> Code:
    """Return code that sums ``count`` columns, from ``c`` on, of the rows from start to stop.

    Entries are added in their order, every column by itself: the sums are the same bits whatever
    the tile, the block of columns or the range of rows.
    """

    def tile(rows, x, out, add, scale, add_scale, c, start, stop):  # type: ignore[no-untyped-def]
        last = len(rows.indices) - 1
        for row in range(start, stop):
            i = np.uintp(row)  # unsigned, or numba asks of every place whether it is negative
            total = zeros(count)
            if rows.own >= 0:
                own = row + rows.own
                mine = load(x.values, own * x.stride + c, count)
                total = times_plus(rows.right[np.uintp(own)], mine, total)
            for entry in range(np.intp(rows.indptr[i]), np.intp(rows.indptr[i + np.uintp(1)])):
                soon = np.intp(rows.indices[np.uintp(min(entry + AHEAD, last))])
                prefetch(x.values, soon * x.stride + c, count)
                j = np.intp(rows.indices[np.uintp(entry)])
                theirs = load(x.values, j * x.stride + c, count)
                total = times_plus(rows.right[np.uintp(j)], theirs, total)
            total = times(rows.left[i] * scale, total)
            if add_scale != 0:
                more = load(add.values, row * add.stride + c, count)
                total = times_plus(add_scale, more, total)
            store(out.values, row * out.stride + c, total)

    code: Code = njit(tile)
    return code


_widest, _64, _32, _16, _8, _4, _1 = (_tile(c) for c in (WIDEST, 64, 32, 16, 8, 4, 1))


@njit
def _columns(rows, x, out, add, scale, add_scale, width, start, stop):  # type: ignore[no-untyped-def]
    # The last tile reaches back over columns that are there already rather than past the end: a
    # sum that is made twice is the same sum, and a narrower tile would walk the entries again.
    c = 0
    while c < width:
        rest = width - c
        if rest > 64 and width >= WIDEST:
            c = min(c, width - WIDEST)
            _widest(rows, x, out, add, scale, add_scale, c, start, stop)
            c += WIDEST
        elif rest > 32 and width >= 64:
            c = min(c, width - 64)
            _64(rows, x, out, add, scale, add_scale, c, start, stop)
            c += 64
        elif rest > 16 and width >= 32:
            c = min(c, width - 32)
            _32(rows, x, out, add, scale, add_scale, c, start, stop)
            c += 32
        elif rest > 8 and width >= 16:
            c = min(c, width - 16)
            _16(rows, x, out, add, scale, add_scale, c, start, stop)
            c += 16
        elif rest > 4 and width >= 8:
            c = min(c, width - 8)
            _8(rows, x, out, add, scale, add_scale, c, start, stop)
            c += 8
        elif rest > 1 and width >= 4:
            c = min(c, width - 4)
            _4(rows, x, out, add, scale, add_scale, c, start, stop)
            c += 4
        else:
            _1(rows, x, out, add, scale, add_scale, c, start, stop)
            c += 1


@compiled
def weighted_sums(rows, x, out, add, scale, add_scale, width, start, stop):  # type: ignore[no-untyped-def]
    """Write scale · L (A + sI) R x + add_scale · add into ``out``, from one row to another.

    rows: ``Rows``; x, out, add: ``Flat``, of which ``width`` columns count.
    """
    for first in range(start, stop, ROWS):
        until = min(first + ROWS, stop)
        _columns(rows, x, out, add, scale, add_scale, width, first, until)
