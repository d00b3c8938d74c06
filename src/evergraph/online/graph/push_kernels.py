"""Differences pushed along edges, and rows corrected by them, in compiled code.

Imported only where numba is.
"""

from __future__ import annotations

import numpy as np

from evergraph.graphs.kernels.compiled import compiled


@compiled
def count_pushed(nodes, starts, counts, pool, direct, others, loops, tally, rows):  # type: ignore[no-untyped-def]
    """Find the rows that feel something, in no order, and return how many they are.

    In ``tally`` each has one more than the number of differences that reach it.
    """
    found = 0
    for other in others:
        if tally[other] == 0:
            tally[other] = 1
            rows[found] = other
            found += 1
    for node in nodes:
        if tally[node] == 0:
            tally[node] = 1
            rows[found] = node
            found += 1
        if loops:
            tally[node] += 1
        for entry in range(starts[node], starts[node] + counts[node]):
            near = pool[entry]
            if tally[near] == 0:
                tally[near] = 1
                rows[found] = near
                found += 1
            tally[near] += 1
    for row in direct:
        if tally[row] == 0:
            tally[row] = 1
            rows[found] = row
            found += 1
        tally[row] += 1
    return found


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
    """List for every row what reaches it, in the order of edges, own, direct; clear ``tally``."""
    end = 0
    for i in range(len(rows)):
        indptr[i] = end
        end += tally[rows[i]] - 1
        tally[rows[i]] = indptr[i]
    indptr[len(rows)] = end
    for i in range(len(nodes)):
        node = nodes[i]
        for entry in range(starts[node], starts[node] + counts[node]):
            near = pool[entry]
            place = tally[near]
            places[place] = i
            given[place] = weights[entry] if len(weights) else np.float32(1)
            tally[near] = place + 1
    if loops:
        for i in range(len(nodes)):
            place = tally[nodes[i]]
            places[place], given[place] = i, 1
            tally[nodes[i]] = place + 1
    for i in range(len(direct_rows)):
        place = tally[direct_rows[i]]
        places[place], given[place] = direct_places[i], direct_weights[i]
        tally[direct_rows[i]] = place + 1
    for row in rows:
        tally[row] = 0


@compiled
def subtract(nodes, now, before, places, new, old, differences, sizes, start, stop):  # type: ignore[no-untyped-def]
    """Fill in new · now - old · before of some nodes, and the largest value of each row.

    places: where a node stands in ``before``, below 0 where it is what it was.
    """
    width = now.shape[1]
    for i in range(start, stop):
        node, place, top = nodes[i], places[i], np.float32(0)
        for c in range(width):
            was = now[node, c] if place < 0 else before[place, c]
            difference = np.float32(new[i] * now[node, c] - old[i] * was)
            differences[i, c] = difference
            top = max(top, abs(difference))
        sizes[i] = top


@compiled
def correct(  # type: ignore[no-untyped-def]
    rows,
    indptr,
    places,
    weights,
    differences,
    sizes,
    ratios,
    left,
    anew,
    rounding,
    values,
    drift,
    before,
    tops,
    start,
    stop,
):
    """Correct rows of ``values`` that are not to be summed anew, and keep what all were.

    tops: the largest value of each row as it is.
    """
    width = values.shape[1]
    sums = np.empty(width, np.float64)
    for i in range(start, stop):
        row = rows[i]
        before[i] = values[row]
        if anew[i]:
            continue
        sums[:] = 0
        pushed = 0.0
        for pair in range(indptr[i], indptr[i + 1]):
            place, weight = places[pair], np.float64(weights[pair])
            pushed += abs(weight) * sizes[place]
            for c in range(width):
                sums[c] += weight * differences[place, c]
        top = np.float32(0)
        for c in range(width):
            value = np.float32(ratios[i] * values[row, c] + left[i] * sums[c])
            values[row, c] = value
            top = max(top, abs(value))
        tops[i] = top
        drift[row] = ratios[i] * drift[row] + rounding * (top + left[i] * pushed)
