"""Compiled code for pushing differences along edges, and for comparing rows.

Imported only if numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evergraph.graphs.kernels.lanes import (
    gap,
    larger,
    load,
    minus,
    peak,
    plus_squares,
    prefetch,
    store,
    summed,
    times,
    zeros,
)
from evergraph.graphs.kernels.numba_sum import inner
from evergraph.graphs.kernels.row_ranges import compiled

Code = Callable[..., Any]
AHEAD, PAIRS_AHEAD = 4, 8  # rows, and differences of rows, that are prefetched ahead of use
TINY = np.float32(1e-25)  # squares below it, or above its inverse, may lose digits


@inner
def _met(row, times, tally, rows, found):  # type: ignore[no-untyped-def]
    """Note a row, which counts the first time only: a branch would be taken at random."""
    rows[np.uintp(found)] = row
    fresh = tally[row] == 0
    tally[row] += times + fresh
    return found + fresh


@inner
def _fetch_lists(nodes, i, starts, counts, pool):  # type: ignore[no-untyped-def]
    """Prefetch the lists of the nodes that come after the i-th: they lie anywhere."""
    if i + 2 * AHEAD < len(nodes):
        prefetch(starts, nodes[i + 2 * AHEAD], 1)
        prefetch(counts, nodes[i + 2 * AHEAD], 1)
        prefetch(pool, starts[nodes[i + AHEAD]], 32)


@compiled
def count_pushed(nodes, starts, counts, pool, direct, others, loops, tally, rows):  # type: ignore[no-untyped-def]
    """Fill in the affected rows, in no order, and return their number.

    ``tally`` of each becomes one more than the number of differences that reach it.
    """
    found = 0
    for other in others:
        found = _met(other, 0, tally, rows, found)
    for i in range(len(nodes)):
        node = nodes[i]
        _fetch_lists(nodes, i, starts, counts, pool)
        found = _met(node, int(loops), tally, rows, found)
        for entry in range(starts[node], starts[node] + counts[node]):
            found = _met(np.uintp(pool[np.uintp(entry)]), 1, tally, rows, found)
    for row in direct:
        found = _met(row, 1, tally, rows, found)
    return found


@compiled
def list_met(tally, rows):  # type: ignore[no-untyped-def]
    """Fill in the positions whose tally is not 0, in order."""
    found = 0
    for row in range(len(tally)):
        rows[np.uintp(found)] = row  # overwritten unless it counts: a branch would be a guess
        found += tally[row] != 0


@compiled
def fill_pushed(  # type: ignore[no-untyped-def]
    nodes,
    starts,
    counts,
    pool,
    weights,
    direct_rows,
    direct_places,
    direct_weights,
    loops,
    rows,
    tally,
    indptr,
    places,
    given,
):
    """List for every row the differences that reach it: along edges, its own, direct ones.

    Clears ``tally``.
    """
    end = 0
    for i in range(len(rows)):
        indptr[i] = end
        end += tally[rows[i]] - 1
        tally[rows[i]] = indptr[i]
    indptr[len(rows)] = end
    given[:] = 1
    for i in range(len(nodes)):
        node = nodes[i]
        _fetch_lists(nodes, i, starts, counts, pool)
        for entry in range(starts[node], starts[node] + counts[node]):
            near = np.uintp(pool[np.uintp(entry)])
            place = np.uintp(tally[near])
            places[place] = i
            if len(weights):
                given[place] = weights[np.uintp(entry)]
            tally[near] += 1
    if loops:
        for i in range(len(nodes)):
            places[tally[nodes[i]]] = i
            tally[nodes[i]] += 1
    for i in range(len(direct_rows)):
        place = tally[direct_rows[i]]
        places[place], given[place] = direct_places[i], direct_weights[i]
        tally[direct_rows[i]] += 1
    for row in rows:
        tally[row] = 0


@inner
def copy_row(values, place, out, begin, width):  # type: ignore[no-untyped-def]
    """Copy a row between flat arrays."""
    whole = width - width % 16
    for c in range(0, whole, 16):
        store(out, begin + c, load(values, place + c, 16))
    for c in range(whole, width):
        out[np.uintp(begin + c)] = values[np.uintp(place + c)]


@inner
def subtract_row(one, values, place, other, out, begin, width):  # type: ignore[no-untyped-def]
    """Replace a row of ``out`` by one · the row of values - other · itself; return its peak."""
    tops, whole = zeros(16), width - width % 16
    for c in range(0, whole, 16):
        difference = gap(one, load(values, place + c, 16), other, load(out, begin + c, 16))
        store(out, begin + c, difference)
        tops = larger(tops, difference)
    top = peak(tops)
    for c in range(whole, width):
        now, was = values[np.uintp(place + c)], out[np.uintp(begin + c)]
        value = np.float32(one * now - other * was)
        out[np.uintp(begin + c)] = value
        top = max(top, abs(value))
    return top


@inner
def fetch_row(values, rows, i, stop, width):  # type: ignore[no-untyped-def]
    """Prefetch the row of a flat array that comes i-th, if there is one."""
    if i < stop:
        for c in range(0, width, 16):
            prefetch(values, rows[i] * width + c, 16)


@compiled
def differ(  # type: ignore[no-untyped-def]
    nodes, former, sent, before, width, values, left, known, were, place, out, sizes, start, stop
):
    """Fill rows of ``out``, from ``place`` on, with what messages of nodes differ by, and peaks.

    former: instead, with the messages as they were; sent, before: nodes whose values changed, and
    their old ones, flat; left, known, were: see ``correct``; values, out: flat
    """
    first = nodes[start] if start < stop else 0
    moved, change = np.searchsorted(sent, first), np.searchsorted(known, first)
    for i in range(start, stop):
        node, begin = nodes[i], (place + i) * width
        fetch_row(values, nodes, i + AHEAD, stop, width)
        while moved < len(sent) and sent[moved] < node:
            moved += 1
        while change < len(known) and known[change] < node:
            change += 1
        now = np.float64(left[node])
        other = change < len(known) and known[change] == node
        was = np.float64(were[change]) if other else now
        new, old = (0.0, -was) if former else (now, was)
        if not (moved < len(sent) and sent[moved] == node):  # only its factor changed
            new, old = new - old, np.float64(0)
        if old == 0:  # whatever it was
            copy_row(values, node * width, out, begin, width)
        else:
            copy_row(before, moved * width, out, begin, width)
        sizes[place + i] = subtract_row(new, values, node * width, old, out, begin, width)


@compiled
def find_different(rows, others, found):  # type: ignore[no-untyped-def]
    """Mark rows that differ; most do in their first value, so that little is read."""
    for i in range(len(rows)):
        found[i] = False
        for c in range(rows.shape[1]):
            if rows[i, c] != others[i, c]:
                found[i] = True
                break


@inner
def _apart(row, place, own, shown, unit, was, at, x):  # type: ignore[no-untyped-def]
    """Return ‖x - was‖² for x = row - own · shown, scaled to unit length if ``unit``; x: scratch.

    row, shown: flat, from ``place`` on; was: flat, from ``at`` on. 0 only if they are equal; NaN if
    squares lose digits.
    """
    width = len(x)
    whole = width - width % 16
    squares = gaps = tops = zeros(16)
    for c in range(0, whole, 16):
        values = load(row, place + c, 16)
        if own != 0:
            values = minus(values, times(own, load(shown, place + c, 16)))
        store(x, c, values)
        squares = plus_squares(squares, values)
    total = summed(squares)
    for c in range(whole, width):
        x[c] = row[place + c]
        if own != 0:
            x[c] -= own * shown[place + c]
        total += x[c] * x[c]
    factor = np.float32(1)
    if unit and (total > 0 or x.any()):
        if not TINY < total < 1 / TINY:
            return np.float32(np.nan)
        factor = np.float32(1) / np.sqrt(total)
    for c in range(0, whole, 16):
        values = minus(times(factor, load(x, c, 16)), load(was, at + c, 16))
        gaps, tops = plus_squares(gaps, values), larger(tops, values)
    gap, top = summed(gaps), peak(tops)
    for c in range(whole, width):
        value = factor * x[c] - was[at + c]
        gap, top = gap + value * value, max(top, abs(value))
    return np.float32(np.nan) if gap < TINY and top > 0 else gap


@compiled
def add_gaps(  # type: ignore[no-untyped-def]
    nodes, slots, rows, width, own, shown, unit, counted, stride, first, gaps, start, stop
):
    """Add to ``gaps`` how far a part of vectors is from the counted one, see ``_apart``.

    rows, own, shown, unit: see ``StoredPart``, flat; counted: by slot, flat, every ``stride``
    values; its part begins at ``first``
    """
    x = np.empty(width, np.float32)
    for i in range(start, stop):
        if i + AHEAD < stop:
            soon, later = nodes[i + AHEAD] * width, slots[i + AHEAD] * stride + first
            for c in range(0, width, 16):
                prefetch(rows, soon + c, 16)
                prefetch(counted, later + c, 16)
                if len(own):
                    prefetch(shown, soon + c, 16)
        node, at = nodes[i], slots[i] * stride + first
        share = own[node] if len(own) else np.float32(0)
        gaps[i] += _apart(rows, node * width, share, shown, unit, counted, at, x)


@inner
def _tops(far, own, shown, place, width):  # type: ignore[no-untyped-def]
    """Return the peaks of a row without its own code, and of this code."""
    tops = codes = zeros(16)
    whole = width - width % 16
    for c in range(0, whole, 16):
        code = times(own, load(shown, place + c, 16))
        tops, codes = larger(tops, minus(load(far, place + c, 16), code)), larger(codes, code)
    top, code_top = peak(tops), peak(codes)
    for c in range(place + whole, place + width):
        value = own * shown[c]
        top, code_top = max(top, abs(far[c] - value)), max(code_top, abs(value))
    return top, code_top


@compiled
def find_unclear(  # type: ignore[no-untyped-def]
    nodes, far, own, shown, drift, most, clear, little, drifted
):
    """Mark labelled nodes of which too little is left without their own code, see ``LiveCodes``."""
    width, rows, labels = far.shape[1], far.reshape(-1), shown.reshape(-1)
    for i in range(len(nodes)):
        node = nodes[i]
        fetch_row(labels, nodes, i + AHEAD, len(nodes), width)
        fetch_row(rows, nodes, i + AHEAD, len(nodes), width)
        if own[node] != 0:
            top, own_top = _tops(rows, own[node], labels, node * width, width)
            little[i] = top < clear * own_top
            drifted[i] = not little[i] and drift[node] > most * top
