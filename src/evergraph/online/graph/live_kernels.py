"""Compiled code that corrects rows by the differences that reach them, on large graphs.

SciPy takes four to six times as long (decision 105). Imported on use, which takes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evergraph.graphs.kernels.numba_sum import (
    WIDEST,
    Flat,
    ListedRows,
    inner,
    larger,
    load,
    minus,
    peak,
    plus,
    prefetch,
    store,
    times,
    times_plus,
    weighted_sums,
    zeros,
)
from evergraph.graphs.kernels.row_ranges import compiled

Code = Callable[..., Any]
AHEAD, PAIRS_AHEAD = 4, 8  # rows, and differences of rows, that are prefetched ahead of use


class Scalings(NamedTuple):
    """The scalings of rows and columns of Â, see ``LiveSmoother.changed``."""

    now: NDArray[np.float32]  # of all nodes
    known: NDArray[np.int64]  # nodes for which they changed, ascending
    were: NDArray[np.float32]  # what they were for these


class SumRule(NamedTuple):
    """When a row is summed anew instead of corrected."""

    loops: int  # entries of a row beside its neighbours: 1 with self-loops
    first: int  # the first new node
    most: np.float32  # the largest bound on a row's rounding error, relative to its peak
    rounding: float  # what one sum adds to it


class SumState(NamedTuple):
    """Rows of sums, flat."""

    values: NDArray[np.float32]
    drift: NDArray[np.float32]  # a bound on the rounding error of each row
    width: int


def _tile(half: int) -> Code:
    """Return code that corrects ``half`` columns from ``low`` on and ``half`` from ``high`` on.

    The two ranges may overlap, so that any width is covered by full vectors: both are read before
    either is written. Sums are compensated (Kahan 1965): the error is about two roundings, however
    many differences are added.
    """

    def tile(  # type: ignore[no-untyped-def]
        places, weights, differences, ratio, left, values, low, high, start, stop
    ):
        a, b, lost_a, lost_b = zeros(half), zeros(half), zeros(half), zeros(half)
        for pair in range(start, stop):
            later = min(pair + PAIRS_AHEAD, len(places) - 1)
            soon = np.intp(places[np.uintp(later)]) * differences.stride
            prefetch(differences.values, soon + low, half)
            prefetch(differences.values, soon + high, half)
            weight = weights[np.uintp(pair)]
            place = np.intp(places[np.uintp(pair)]) * differences.stride
            more = times_plus(weight, load(differences.values, place + low, half), lost_a)
            total = plus(a, more)
            lost_a, a = minus(more, minus(total, a)), total
            more = times_plus(weight, load(differences.values, place + high, half), lost_b)
            total = plus(b, more)
            lost_b, b = minus(more, minus(total, b)), total
        a = times_plus(ratio, load(values.values, values.stride + low, half), times(left, a))
        b = times_plus(ratio, load(values.values, values.stride + high, half), times(left, b))
        store(values.values, values.stride + low, a)
        store(values.values, values.stride + high, b)
        return peak(larger(larger(zeros(half), a), b))

    return inner(tile)


# A wide tile reads whole rows of differences one after the other. It needs twice the registers of a
# sum that is not compensated, which AVX-512 has.
_64, _16, _8, _4, _2, _1 = (_tile(half) for half in (64, 16, 8, 4, 2, 1))


@inner
def _fetch_row(values, rows, i, stop, width):  # type: ignore[no-untyped-def]
    """Prefetch the row of a flat array that comes i-th, if there is one."""
    if i < stop:
        for c in range(0, width, 16):
            prefetch(values, rows[i] * width + c, 16)


@inner
def _columns(  # type: ignore[no-untyped-def]
    places, weights, differences, ratio, left, values, width, start, stop
):
    """Correct one row, which begins at ``stride`` of values."""
    top, low = np.float32(0), 0
    while low < width:
        count = min(width - low, 128 if WIDEST >= 128 and width - low > 64 else 32)
        end = low + count
        given = (places, weights, differences, ratio, left, values, low)
        if count > 64:
            found = _64(*given, end - 64, start, stop)
        elif count > 16:
            found = _16(*given, end - 16, start, stop)
        elif count > 8:
            found = _8(*given, end - 8, start, stop)
        elif count > 4:
            found = _4(*given, end - 4, start, stop)
        elif count > 2:
            found = _2(*given, end - 2, start, stop)
        else:
            found = _1(*given, end - 1, start, stop)
        top, low = max(top, found), end
    return top


@compiled
def correct(pushed, differences, sizes, source, lists, scalings, rule, state, start, stop):  # type: ignore[no-untyped-def]
    """Correct rows of sums, or sum them anew where that costs as much or rounding may show.

    pushed: ``Pushed``; differences, source: ``Flat``; sizes: the peak of each difference; lists:
    in-neighbours, as in ``Lists``, with () for no weights
    """
    rows, indptr, places, weights = pushed
    left, known, were = scalings
    starts, counts, pool, entry_weights = lists
    loops, first, most, rounding = rule
    values, drift, width = state
    change = np.searchsorted(known, rows[start]) if start < stop else 0
    ends, own = np.empty(1, np.int64), np.empty(loops, np.int64)
    for i in range(start, stop):
        node = rows[i]
        row = node * width
        _fetch_row(values, rows, i + AHEAD, stop, width)
        while change < len(known) and known[change] < node:
            change += 1
        other = change < len(known) and known[change] == node
        now = np.float64(left[node])
        was = np.float64(were[change]) if other else now
        begins, stops = indptr[i], indptr[i + 1]
        due = stops - begins >= counts[node] + loops or was == 0 or node >= first
        if not due:
            reached = 0.0
            for pair in range(begins, stops):
                reached += abs(weights[np.uintp(pair)]) * sizes[np.uintp(places[np.uintp(pair)])]
            ratio, factor = np.float32(now / was), np.float32(now)
            there = Flat(values, row)
            top = _columns(places, weights, differences, ratio, factor, there, width, begins, stops)
            rounded = top if ratio == 1 else 2 * top
            drift[node] = ratio * drift[node] + rounding * (rounded + 6 * factor * reached)
            due = drift[node] > most * top
        if due:
            ends[0] = starts[node] + counts[node]
            own[:] = node
            here = slice(node, node + 1)
            last, mine = len(pool) - 1, left[here]
            listed = ListedRows(starts[here], ends, pool, mine, left, own, last, entry_weights)
            there = Flat(values[row : row + width], width)
            one, none = np.float32(1), np.float32(0)
            # Not 0 and 1: the kernel would be compiled once more, for these constants.
            start_row, stop_row = np.int64(0), np.int64(1)
            weighted_sums(listed, source, there, there, one, none, width, start_row, stop_row)
            drift[node] = 0
