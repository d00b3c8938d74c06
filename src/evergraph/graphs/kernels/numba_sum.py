"""A numba kernel that weighs, sums and scales in one pass over the adjacency.

Imported only if numba is installed.
"""

from __future__ import annotations

import platform
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

_FEATURES = llvmlite.binding.get_host_cpu_features()

# Number of entries by which a neighbour's features are prefetched.
AHEAD = 8
# Rows whose tiles are all summed before the next rows begin, so that shared data stays in cache.
ROWS = 16
# The sum of this many columns fits into half of the machine's vector registers.
WIDEST = 128 if _FEATURES.get("avx512f") else 64
# Whether the machine converts float16 in hardware; all processors since 2013 do.
READS_FLOAT16 = bool(_FEATURES.get("f16c")) or platform.machine().lower() in ("aarch64", "arm64")


class ListedRows(NamedTuple):
    """Some rows of L (A + sI) R, see ``Smoother``: entries from ``starts`` to ``stops``.

    ``own`` is the offset of a row's own column from its number if rows follow each other, below 0
    without self-loops; for rows that lie anywhere in a pool it holds each row's own column, and is
    empty without self-loops. Entry e has the weight ``weights[e * step]``: one value and a step of
    0 if there are no weights, so that the same compiled code serves both.
    """

    starts: NDArray[np.int32] | NDArray[np.int64]
    stops: NDArray[np.int32] | NDArray[np.int64]
    indices: NDArray[np.int32]
    left: NDArray[np.float32]
    right: NDArray[np.float32]
    own: int | NDArray[np.int64]
    weights: NDArray[np.float32]
    step: int


def entry_weights(weights: NDArray[np.float32] | None) -> tuple[NDArray[np.float32], int]:
    """Return the last two fields of ``ListedRows``; None for weights of 1."""
    return (np.ones(1, np.float32), 0) if weights is None else (weights, 1)


class Flat(NamedTuple):
    """A matrix as a flat array in which a row begins every ``stride`` values.

    Half floats are given by their bits: see ``load``.
    """

    values: NDArray[np.float32] | NDArray[np.int16] | NDArray[np.uint16]
    stride: int


def own_column(rows, row):  # type: ignore[no-untyped-def]
    """Return a row's own column, below 0 without a self-loop; compiled code only, as below."""
    raise NotImplementedError


def _anywhere(rows: Any) -> bool:
    """Return whether rows lie anywhere in a pool; known at compile time."""
    return isinstance(rows.types[rows.fields.index("own")], types.Array)


@overload(own_column, inline="always")
def _own_column(rows, row):  # type: ignore[no-untyped-def]
    if _anywhere(rows):
        return lambda rows, row: np.intp(rows.own[np.uintp(row)]) if len(rows.own) else -1
    return lambda rows, row: row + rows.own if rows.own >= 0 else -1


def ahead(rows, entry, end):  # type: ignore[no-untyped-def]
    """Return the entry to prefetch; for rows that lie anywhere, within the same row."""
    raise NotImplementedError


@overload(ahead, inline="always")
def _ahead(rows, entry, end):  # type: ignore[no-untyped-def]
    if _anywhere(rows):
        return lambda rows, entry, end: min(entry + AHEAD, end - 1)
    return lambda rows, entry, end: min(entry + AHEAD, len(rows.indices) - 1)


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
            own = own_column(rows, row)  # type: ignore[no-untyped-call]
            if own >= 0:
                weight = rows.right[np.uintp(own)]
                place = own * x.stride
                a = times_plus(weight, load(x.values, place + low, half), a)
                b = times_plus(weight, load(x.values, place + high, half), b)
            end = np.intp(rows.stops[i])
            for entry in range(np.intp(rows.starts[i]), end):
                later = ahead(rows, entry, end)  # type: ignore[no-untyped-call]
                soon = np.intp(rows.indices[np.uintp(later)]) * x.stride
                prefetch(x.values, soon + low, half)
                prefetch(x.values, soon + high, half)
                j = np.intp(rows.indices[np.uintp(entry)])
                weight = rows.right[np.uintp(j)] * rows.weights[np.uintp(entry * rows.step)]
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

    # Called by compiled code alone: wrappers for Python would be compiled in vain.
    code: Code = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(tile)
    return code


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
    for upper in range(start, stop, ROWS):
        lower = min(upper + ROWS, stop)
        for first in range(0, width, step):
            count = min(step, width - first)
            _columns(rows, x, out, add, scale, add_scale, first, count, upper, lower)
