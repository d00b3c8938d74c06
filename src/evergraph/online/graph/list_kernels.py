"""Compiled code that changes neighbour lists in place, or compares them.

Imported only if numba is installed.
"""

from __future__ import annotations

import numpy as np

from evergraph.graphs.kernels.lanes import prefetch
from evergraph.graphs.kernels.numba_sum import inner
from evergraph.graphs.kernels.row_ranges import compiled


@compiled
def locate(starts, counts, pool, rows, columns, places, there):  # type: ignore[no-untyped-def]
    """Find the index of each column in the list of its row, or where to insert it."""
    for i in range(len(rows)):
        if i + 16 < len(rows):  # lists lie anywhere; a search begins in the middle
            prefetch(starts, rows[i + 16], 1)
            prefetch(counts, rows[i + 16], 1)
            prefetch(pool, starts[rows[i + 8]] + counts[rows[i + 8]] // 2, 1)
        start, low, high = starts[rows[i]], 0, counts[rows[i]]
        end = high
        while low < high:
            middle = (low + high) // 2
            if pool[start + middle] < columns[i]:
                low = middle + 1
            else:
                high = middle
        places[i] = low
        there[i] = low < end and pool[start + low] == columns[i]


@compiled
def merge(starts, counts, pool, rows, columns, places):  # type: ignore[no-untyped-def]
    """Insert columns into lists that have the capacity. rows, columns: ascending as pairs."""
    stop = len(rows)
    while stop > 0:
        row, first = rows[stop - 1], stop - 1
        while first > 0 and rows[first - 1] == row:
            first -= 1
        start, end = starts[row], counts[row]
        for i in range(stop - 1, first - 1, -1):
            shift = i - first + 1
            for place in range(end - 1, places[i] - 1, -1):
                pool[start + place + shift] = pool[start + place]
            end = places[i]
            pool[start + end + shift - 1] = columns[i]
        counts[row] += stop - first
        stop = first


@compiled
def drop(starts, counts, pool, rows, places):  # type: ignore[no-untyped-def]
    """Delete the entries at some indices of lists. rows, places: ascending as pairs."""
    first = 0
    while first < len(rows):
        row, stop = rows[first], first + 1
        while stop < len(rows) and rows[stop] == row:
            stop += 1
        start, count = starts[row], counts[row]
        for i in range(first, stop):
            shift = i - first + 1
            end = places[i + 1] if i + 1 < stop else count
            for place in range(places[i] + 1, end):
                pool[start + place - shift] = pool[start + place]
        counts[row] = count - (stop - first)
        first = stop


@inner
def _not_below(wanted, values, low, high):  # type: ignore[no-untyped-def]
    """Return where the first of ascending values is that is not below another."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def there_and_back(  # type: ignore[no-untyped-def]
    nodes, starts, counts, pool, backs, numbers, home, weights, returns, scalings, sums
):
    """Fill in s_v² Σ_u w_vu w_uv s_u² over the u that v gathers from and that gather from v.

    Both lists ascend: the one that is behind leaps to where the other is, past most of a hub.
    """
    for i in range(len(nodes)):
        node, total = nodes[i], 0.0
        one, other = starts[node], backs[node]
        end, last = one + counts[node], other + numbers[node]
        while one < end and other < last:
            if pool[one] < home[other]:
                one = _not_below(home[other], pool, one + 1, end)
            elif pool[one] > home[other]:
                other = _not_below(pool[one], home, other + 1, last)
            else:
                share = np.float64(scalings[pool[one]]) ** 2
                if len(weights):
                    share *= np.float64(weights[one]) * returns[other]
                total += share
                one, other = one + 1, other + 1
        sums[i] = np.float64(scalings[node]) ** 2 * total
