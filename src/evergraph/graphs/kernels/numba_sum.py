"""A numba kernel that weighs, sums and scales in one pass over the adjacency.

Imported on use, which takes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from evergraph.graphs.kernels.lanes import load, prefetch, store, times, times_plus, zeros
from evergraph.graphs.kernels.row_ranges import compiled

Code = Callable[..., Any]
# For what compiled code alone calls: wrappers for Python would be compiled in vain.
inner: Callable[[Code], Code] = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
_FEATURES = llvmlite.binding.get_host_cpu_features()

# Number of entries by which a neighbour's features are prefetched.
AHEAD = 8
# Rows whose tiles are all summed before the next rows begin, so that shared data stays in cache.
ROWS_PER_BLOCK = 16
# The sum of this many columns fits into half of the machine's vector registers.
WIDEST = 128 if _FEATURES.get("avx512f") else 64


class ListedRows(NamedTuple):
    """Some rows of L (A + sI) R, see ``Smoother``; their entries may lie anywhere in a pool.

    One form for rows of a graph and of a growing one: they share a compiled kernel.
    """

    # starts, stops: where each row's entries begin and end in ``indices``
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.int32]
    left: NDArray[np.float32]
    right: NDArray[np.float32]
    own: NDArray[np.int64]  # each row's own column; empty without self-loops
    last: int  # the last entry that may be read ahead of time
    # weights of the entries; () if all are 1, for which a kernel of its own is compiled
    weights: NDArray[np.float32] | tuple[()] = ()


class Flat(NamedTuple):
    """A matrix as a flat array in which a row begins every ``stride`` values.

    Half floats are given by their bits: see ``load``.
    """

    values: NDArray[np.float32] | NDArray[np.int16] | NDArray[np.uint16]
    stride: int


def weigh(rows, j, entry):  # type: ignore[no-untyped-def]
    """Return the weight of the features of ``j`` in a sum; compiled code only."""
    raise NotImplementedError


@overload(weigh, inline="always")
def _weigh(rows, j, entry):  # type: ignore[no-untyped-def]
    # Chosen at compile time, so that rows without weights have no overhead.
    if isinstance(rows.types[rows.fields.index("weights")], types.Array):
        return lambda rows, j, entry: rows.right[np.uintp(j)] * rows.weights[np.uintp(entry)]
    return lambda rows, j, entry: rows.right[np.uintp(j)]


def _tile(half: int) -> Code:
    """Return code that sums the columns from ``low`` and from ``high`` on, ``half`` of each.

    The two may overlap, so that one pass over the entries serves any number of columns from
    ``half`` to twice as many: a sum computed twice is the same. Entries are added in their order,
    every column by itself: the bits of the sums do not depend on the tile, the block of columns or
    the range of rows.
    """

    def tile(rows, x, out, add, scale, add_scale, low, high, start, stop):  # type: ignore[no-untyped-def]
        for row in range(start, stop):
            i = np.uintp(row)  # unsigned, or numba checks every index for negative values
            a, b = zeros(half), zeros(half)
            if len(rows.own):
                own = np.intp(rows.own[i])
                weight = rows.right[np.uintp(own)]
                place = own * x.stride
                a = times_plus(weight, load(x.values, place + low, half), a)
                b = times_plus(weight, load(x.values, place + high, half), b)
            end = np.intp(rows.stops[i])
            # After the entries of this row those of the next are needed, wherever they lie.
            jump = np.intp(rows.starts[np.uintp(min(row + 1, stop - 1))]) - end
            for entry in range(np.intp(rows.starts[i]), end):
                later = entry + AHEAD
                later = min(later + jump if later >= end else later, rows.last)
                soon = np.intp(rows.indices[np.uintp(later)]) * x.stride
                prefetch(x.values, soon + low, half)
                prefetch(x.values, soon + high, half)
                j = np.intp(rows.indices[np.uintp(entry)])
                weight = weigh(rows, j, entry)  # type: ignore[no-untyped-call]
                place = j * x.stride
                a = times_plus(weight, load(x.values, place + low, half), a)
                b = times_plus(weight, load(x.values, place + high, half), b)
            a, b = times(rows.left[i] * scale, a), times(rows.left[i] * scale, b)
            if add_scale != 0:
                place = row * add.stride
                a = times_plus(add_scale, load(add.values, place + low, half), a)
                b = times_plus(add_scale, load(add.values, place + high, half), b)
            store(out.values, row * out.stride + low, a)
            store(out.values, row * out.stride + high, b)

    return inner(tile)


_64, _32, _16, _8, _4, _2, _1 = (_tile(half) for half in (64, 32, 16, 8, 4, 2, 1))


@njit(inline="always")
def _columns(rows, x, out, add, scale, add_scale, first, count, start, stop):  # type: ignore[no-untyped-def]
    end = first + count
    if count > 64:
        _64(rows, x, out, add, scale, add_scale, first, end - 64, start, stop)
    elif count > 32:
        _32(rows, x, out, add, scale, add_scale, first, end - 32, start, stop)
    elif count > 16:
        _16(rows, x, out, add, scale, add_scale, first, end - 16, start, stop)
    elif count > 8:
        _8(rows, x, out, add, scale, add_scale, first, end - 8, start, stop)
    elif count > 4:
        _4(rows, x, out, add, scale, add_scale, first, end - 4, start, stop)
    elif count > 2:
        _2(rows, x, out, add, scale, add_scale, first, end - 2, start, stop)
    else:
        _1(rows, x, out, add, scale, add_scale, first, end - 1, start, stop)


@compiled
def weighted_sums(rows, x, out, add, scale, add_scale, width, start, stop):  # type: ignore[no-untyped-def]
    """Write scale · L (A + sI) R x + add_scale · add into ``out``, for a range of rows.

    rows: ``ListedRows``; x, out, add: ``Flat``, of which ``width`` columns are used.
    """
    tiles = -(-width // WIDEST)
    step = min(-(-width // (16 * tiles)) * 16, WIDEST)  # whole cache lines of similar width
    for upper in range(start, stop, ROWS_PER_BLOCK):
        lower = min(upper + ROWS_PER_BLOCK, stop)
        for first in range(0, width, step):
            count = min(step, width - first)
            _columns(rows, x, out, add, scale, add_scale, first, count, upper, lower)
