"""Differences of messages, and rows of Â V that they correct.

Z_v = l_v P_v with P_v = Σ_u w_vu r_u m_u. If the message of u changes by d_u = r'_u m'_u - r_u m_u
and an entry by w'_vu - w_vu, then

    P'_v - P_v = Σ_u w'_vu d_u + Σ_u (w'_vu - w_vu) r_u m_u
    Z'_v = (l'_v / l_v) Z_v + l'_v (P'_v - P_v)

Sums are computed in float64, or compensated. For each row a bound on the rounding error since it
was last recomputed is kept: a correction adds one rounding of the row, one more if l changed, and
six of everything that is pushed (in d, in the sum, and in l).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.graphs.kernels.row_ranges import in_parts
from evergraph.online.graph.growing_array import GrowingArray, blocks
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_smoother import ROUNDING, LiveSmoother, index_in
from evergraph.online.graph.neighbour_lists import Entries
from evergraph.online.graph.pushing import Pushed

Array = npt.NDArray[Any]


class Differences(NamedTuple):
    """Differences of messages, one row each."""

    nodes: Array  # whose messages changed, ascending, each once.  int64 [n]
    # d_u of these, then r_u m_u, as they were, of the columns whose entries changed.
    rows: Array  # float32 [n + columns, width]
    sizes: Array  # the largest absolute value of each.  float32 [n + columns]


class ChangedRows:
    """Rows that changed.

    Args:
        nodes: positions, ascending.  int64 [n]
        before: old rows, float32 [n, width]; or returns them, which is rarely called and valid
            until the next change.
        differences: of these rows as messages; then old rows are not needed.
    """

    def __init__(
        self,
        nodes: Tensor,
        before: Tensor | Callable[[], Tensor],
        differences: Differences | None = None,
    ) -> None:
        self.nodes = nodes
        self.differences = differences
        self._before = before

    @cached_property
    def before(self) -> Tensor:
        """Old rows.  float32 [n, width]"""
        return self._before if isinstance(self._before, Tensor) else self._before()


class Direct(NamedTuple):
    """Changed entries, each of which carries the old message of its column to its row."""

    entries: Entries  # their columns are numbered by their place among:
    columns: Array  # positions, ascending, each once.  int64 [columns]

    @classmethod
    def of(cls, entries: Entries) -> Direct:
        """Number the columns of entries."""
        columns, places = np.unique(entries.columns, return_inverse=True)
        return cls(entries._replace(columns=places.reshape(-1)), columns)


def differences(
    smoother: LiveSmoother,
    sent: ChangedRows,
    nodes: Array,
    values: Tensor,
    direct: Direct,
    states: GrowingArray,
    *,
    compiled: bool,
) -> Differences:
    """Return what messages differ by.

    sent: messages that changed; nodes: of these, and those whose factor r did, ascending, int64
    [n]; values: all current messages, [positions, width]; states: what they will correct
    """
    count = len(nodes) + len(direct.columns)
    rows, sizes = states.room(count).numpy(), np.empty(count, np.float32)
    found = Differences(nodes, rows, sizes)
    given = (smoother, sent.nodes.numpy(), sent.before.numpy(), values.numpy(), found)
    _differ(*given, nodes, 0, states, former=False, compiled=compiled)
    _differ(*given, direct.columns, len(nodes), states, former=True, compiled=compiled)
    return found


def _differ(
    smoother: LiveSmoother,
    sent: Array,
    before: Array,
    values: Array,
    found: Differences,
    nodes: Array,
    place: int,
    states: GrowingArray,
    *,
    former: bool,
    compiled: bool,
) -> None:
    """Fill in some differences from a place on; former: the old messages of nodes instead.

    sent, before: nodes whose values changed, ascending, and their old ones
    """
    for part in blocks(len(nodes), max(len(nodes), 1)):
        if compiled:
            from evergraph.online.graph.live_kernels import differ

            width = values.shape[1]
            given = (
                nodes,
                former,
                sent,
                before.reshape(-1),
                width,
                values.reshape(-1),
                *smoother.changed,
                place,
                found.rows.reshape(-1),
                found.sizes,
            )

            def work(some: slice, given: tuple[Any, ...] = given, at: int = part.start) -> None:
                differ(*given, at + some.start, at + some.stop)

            in_parts(work, np.ones(part.stop - part.start, np.int64), each=2 * width)
            continue
        where = index_in(sent, nodes[part])
        now, was = smoother.now_and_before(nodes[part])
        new, old = (0 * now, -was) if former else (now, was)
        same = where < 0  # the message did not change, only its factor
        new[same], old[same] = new[same] - old[same], 0
        were = np.zeros((len(where), values.shape[1]))
        were[~same] = before[where[~same]]
        were[old == 0] = 0
        gaps = new[:, None] * values[nodes[part]].astype(np.float64) - old[:, None] * were
        into = slice(place + part.start, place + part.stop)
        found.rows[into] = gaps
        found.sizes[into] = np.abs(found.rows[into]).max(1, initial=0)


def correct(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    source: Tensor,
    found: Differences,
    pushed: Pushed,
    states: GrowingArray,
    drift: Array,
    *,
    new: Tensor,
    most: float,
    onward: Direct | None,
) -> ChangedRows:
    """Correct rows of ``states`` in place, and return them.

    Rows are recomputed instead where correcting them would cost as much, where they are new, and
    where rounding errors might show.

    source: all messages, [positions, width]; found, pushed: differences of these, and which of them
    reach which rows; drift: the bound on the rounding error of each row, float32 [positions]; new:
    added nodes, int64 [new]; most: the largest bound, relative to a row's largest value; onward:
    changed entries, if these rows are the messages of a further hop
    """
    rows = pushed.rows
    columns = np.empty(0, np.int64) if onward is None else onward.columns
    out = states.room(len(rows) + len(columns) if onward is not None else 0).numpy()
    peaks = np.empty(len(out), np.float32)
    after = Differences(rows, out, peaks)
    if len(columns):  # before they are corrected
        given = (smoother, rows[:0], out[:0], states.array, after, columns, len(rows), states)
        _differ(*given, former=True, compiled=graph.compiled)
    first = int(new[0]) if len(new) else graph.num_nodes
    work = _correct_compiled if graph.compiled else _correct
    for part in blocks(len(rows), max(len(rows), 1)):
        work(graph, smoother, source, found, pushed, first, most, states.array, drift, after, part)
    return ChangedRows(torch.from_numpy(rows), states.room(0), None if onward is None else after)


def _correct(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    source: Tensor,
    found: Differences,
    pushed: Pushed,
    first: int,
    most: float,
    values: Array,
    drift: Array,
    after: Differences,
    part: slice,
) -> None:
    """Correct some rows; see the compiled form."""
    nodes, starts = pushed.rows[part], pushed.indptr[part.start : part.stop + 1]
    pairs = slice(starts[0], starts[-1])
    used, columns = np.unique(pushed.places[pairs], return_inverse=True)
    given = (pushed.weights[pairs].astype(np.float64), columns.reshape(-1), starts - starts[0])
    matrix = scipy.sparse.csr_matrix(given, shape=(len(nodes), len(used)))
    rows = values[nodes]
    left, were = smoother.now_and_before(nodes)
    degrees = graph.into.lengths(nodes) + int(smoother.self_loops)
    anew = (np.diff(starts) >= degrees) | (were == 0) | (nodes >= first)
    ratios = left / np.where(were == 0, 1, were)
    sums = left[:, None] * (matrix @ found.rows[used].astype(np.float64))
    corrected = (ratios[:, None] * rows + sums).astype(np.float32)
    reached = left * (abs(matrix) @ found.sizes[used].astype(np.float64))
    tops = np.abs(corrected).max(1, initial=0)
    rounded = np.where(ratios == 1, tops, 2 * tops) + 6 * reached
    bounds = (ratios * drift[nodes] + ROUNDING * rounded).astype(np.float32)
    anew |= bounds > np.float32(most) * tops
    values[nodes[~anew]], drift[nodes[~anew]] = corrected[~anew], bounds[~anew]
    again = nodes[anew]
    values[again] = smoother.product(graph, torch.from_numpy(again), source).numpy()
    drift[again] = 0
    if len(after.rows):
        rows[were == 0] = 0
        gaps = left[:, None] * values[nodes].astype(np.float64) - were[:, None] * rows
        after.rows[part] = gaps
        after.sizes[part] = np.abs(after.rows[part]).max(1, initial=0)


def _correct_compiled(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    source: Tensor,
    found: Differences,
    pushed: Pushed,
    first: int,
    most: float,
    values: Array,
    drift: Array,
    after: Differences,
    part: slice,
) -> None:
    from evergraph.graphs.kernels.numba_sum import Flat
    from evergraph.online.graph import correcting_kernels as kernels

    width, (*lists, weights) = values.shape[1], graph.into.lying()
    given = (
        pushed,
        Flat(found.rows.reshape(-1), width),
        found.sizes,
        Flat(source.numpy().reshape(-1), width),
        (*lists, () if weights is None else weights),
        kernels.Scalings(*smoother.changed),
        kernels.SumRule(int(smoother.self_loops), first, np.float32(most), ROUNDING),
        kernels.SumState(values.reshape(-1), drift, after.rows.reshape(-1), after.sizes, width),
    )
    in_parts(
        lambda some: kernels.correct(*given, part.start + some.start, part.start + some.stop),
        np.diff(pushed.indptr[part.start : part.stop + 1]) + 3,
        each=width,
    )
