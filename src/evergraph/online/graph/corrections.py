"""Smoothed rows corrected by differences, as long as rounding leaves no trace.

Z_v = l_v P_v with P_v = Σ_u w_vu r_u m_u. What u gives has changed by d_u = r'_u m'_u - r_u m_u,
an entry by w'_vu - w_vu; so

    P'_v - P_v = Σ_u w'_vu d_u + Σ_u (w'_vu - w_vu) r_u m_u
    Z'_v = (l'_v / l_v) Z_v + l'_v (P'_v - P_v)

Sums are made in float64, or carry along what is rounded away. Beside each row stands a bound of
what rounding may have added up to since it was last summed anew: a correction adds one rounding of
the row, one more where l changed, and six of all that is pushed (in d, in the sum, and in l).
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
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_smoother import LiveSmoother
from evergraph.online.graph.neighbour_lists import Entries

Array = npt.NDArray[Any]

ROUNDING = 2.0**-24  # the most that rounding to float32 moves a value, relative to it
# Of a row's largest value: past it a row is summed anew. Rounding that always goes the same way
# takes 64 corrections to get there.
DRIFT = 64 * ROUNDING


class Moved(NamedTuple):
    """Rows that are others now.

    Attributes:
        nodes: positions, ascending.  int64 [n]
        before: what the rows were.  float32 [n, width]
        after: what they are.  float32 [n, width]
    """

    nodes: Tensor
    before: Tensor
    after: Tensor


class LaterMoved:
    """The same, where what rows were and are is made when somebody asks: mostly nobody does.

    Args:
        nodes: positions, ascending.  int64 [n]
        before: makes what the rows were.
        after: makes what they are; both are good until the next change.
    """

    def __init__(
        self, nodes: Tensor, before: Callable[[], Tensor], after: Callable[[], Tensor]
    ) -> None:
        self.nodes = nodes
        self._before, self._after = before, after

    @cached_property
    def before(self) -> Tensor:
        """What the rows were.  float32 [n, width]"""
        return self._before()

    @cached_property
    def after(self) -> Tensor:
        """What they are.  float32 [n, width]"""
        return self._after()


Changed = Moved | LaterMoved


class Differences(NamedTuple):
    """What is pushed, one row each, and whom it reaches.

    Attributes:
        rows: d_u of all that give something else, then r_u m_u of the columns whose entries
            changed.  float32 [differences, width]
        sizes: the largest value of each, without sign.  float32 [differences]
        pushed: which of them reach which nodes.
    """

    rows: Array
    sizes: Array
    pushed: Pushed


def differences(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    sent: Changed,
    values: Tensor,
    touched: Tensor,
    entries: Entries,
) -> Differences:
    """Return by what the sums of which rows change.

    sent: who gives something else; values: what all give now, [positions, width]; touched: who
    gathers otherwise, int64 [n]; entries: in what
    """
    nodes, others = sent.nodes.numpy(), touched.numpy()
    if smoother.scheme == "symmetric":  # their own factor is in what they give
        nodes = graph.distinct(np.concatenate([nodes, others]))
    columns, places = np.unique(entries.columns, return_inverse=True)
    direct = Direct(entries.rows, len(nodes) + places.reshape(-1), entries.differences)
    pushed = push(graph, nodes, direct=direct, others=others, loops=smoother.self_loops)
    (now, was), (_, gave) = smoother.right(nodes), smoother.right(columns)
    # 0 · now + r_u · before: what columns gave
    factors = np.concatenate([now, np.zeros(len(columns))]), np.concatenate([was, -gave])
    both = np.concatenate([nodes, columns])
    compiled = graph.compiled
    make = _subtract_compiled if compiled else _subtract
    return Differences(*make(both, values.numpy(), sent, *factors), pushed)


def _places(nodes: Array, sent: Changed) -> Array:
    """Return where nodes stand among those that were sent, below 0 where they do not."""
    known = sent.nodes.numpy()
    if not len(known):
        return np.full(len(nodes), -1)
    places = np.minimum(np.searchsorted(known, nodes), len(known) - 1)
    return np.where(known[places] == nodes, places, -1)


def _subtract(
    nodes: Array, values: Array, sent: Changed, new: Array, old: Array
) -> tuple[Array, Array]:
    now = values[nodes].astype(np.float64)
    before, places = now.copy(), _places(nodes, sent)
    before[places >= 0] = sent.before.numpy()[places[places >= 0]]  # ``after`` is what they are
    rows = (new[:, None] * now - old[:, None] * before).astype(np.float32)
    return rows, np.abs(rows).max(1, initial=0)


def _subtract_compiled(
    nodes: Array, values: Array, sent: Changed, new: Array, old: Array
) -> tuple[Array, Array]:
    from evergraph.online.graph.live_kernels import subtract

    rows = np.empty((len(nodes), values.shape[1]), np.float32)
    sizes = np.empty(len(nodes), np.float32)
    moved = sent.before.numpy(), sent.after.numpy()
    given = (nodes, _places(nodes, sent), values, *moved, new, old, rows, sizes)
    in_parts(
        lambda part: subtract(*given, part.start, part.stop),
        np.ones(len(nodes), np.int64),
        each=2 * values.shape[1],
    )
    return rows, sizes


def correct(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    found: Differences,
    new: Tensor,
    values: Tensor,
    drift: Array,
) -> tuple[Moved, Tensor, Tensor]:
    """Correct rows of ``values`` in place; return them, which are due, and their largest values.

    Due are rows that are left to be summed anew, because correcting them would cost as much or
    because nothing stood there.

    new: nodes that came, int64 [new]; drift: the bound of what rounding has added up to in each
    row, float32 [positions] -> rows, bool [rows], float32 [rows]
    """
    rows = found.pushed.rows
    left, were = smoother.left(rows)
    lengths = np.diff(found.pushed.indptr)
    degrees = graph.degrees(torch.from_numpy(rows)).numpy() + int(smoother.self_loops)
    first = int(new[0]) if len(new) else graph.num_nodes
    anew = (lengths >= degrees) | (were == 0) | (rows >= first)
    ratios = left / np.where(were == 0, 1, were)
    compiled = graph.compiled
    make = _correct_compiled if compiled else _correct
    made = make(found, ratios, left, anew, values.numpy(), drift)
    before, after, tops = map(torch.from_numpy, made)
    return Moved(torch.from_numpy(rows), before, after), torch.from_numpy(anew), tops


def _correct(
    found: Differences, ratios: Array, left: Array, anew: Array, values: Array, drift: Array
) -> tuple[Array, Array, Array]:
    nodes, indptr, places, weights = found.pushed
    shape = (len(nodes), len(found.rows))
    matrix = scipy.sparse.csr_matrix((weights.astype(np.float64), places, indptr), shape=shape)
    before = values[nodes]
    sums = left[:, None] * (matrix @ found.rows.astype(np.float64))
    after = (ratios[:, None] * before + sums).astype(np.float32)
    reached = left * (abs(matrix) @ found.sizes.astype(np.float64))
    tops = np.abs(after).max(1, initial=0)
    rounded = np.where(ratios == 1, tops, 2 * tops) + 6 * reached
    bounds = ratios * drift[nodes] + ROUNDING * rounded
    kept = ~anew
    values[nodes[kept]], drift[nodes[kept]] = after[kept], bounds[kept]
    return before, after, tops


def _correct_compiled(
    found: Differences, ratios: Array, left: Array, anew: Array, values: Array, drift: Array
) -> tuple[Array, Array, Array]:
    from evergraph.graphs.kernels.numba_sum import Flat
    from evergraph.online.graph import live_kernels

    width = values.shape[1]
    before, after = (np.empty((len(found.pushed.rows), width), np.float32) for _ in range(2))
    tops = np.empty(len(before), np.float32)
    given = (*found.pushed, Flat(found.rows.reshape(-1), width), found.sizes, ratios, left, anew)
    flat = (values.reshape(-1), drift, before.reshape(-1), after.reshape(-1), tops)
    in_parts(
        lambda part: live_kernels.correct(*given, ROUNDING, width, *flat, part.start, part.stop),
        np.diff(found.pushed.indptr) + 3,
        each=width,
    )
    return before, after, tops


def differ(rows: Array, others: Array) -> Array:
    """Return which rows are not the same, bit for bit.  2 x float32 [n, width] -> bool [n]

    >>> differ(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 2], [3, 5]], np.float32))
    array([False,  True])
    """
    word = np.uint64 if rows.shape[1] % 2 == 0 else np.uint32  # fewer comparisons of wider words
    found: Array = (rows.view(word) != others.view(word)).any(1)
    return found


SORTED = 64  # how many positions are looked through in the time that it takes to sort one more


class Pushed(NamedTuple):
    """For every row that feels a change, the differences that reach it, as CSR.

    Attributes:
        rows: positions, ascending, each once.  int64 [rows]
        indptr: where each row's differences begin.  int64 [rows + 1]
        places: which differences.  int64 [pairs]
        weights: how much each counts.  float32 [pairs]
    """

    rows: Array
    indptr: Array
    places: Array
    weights: Array


class Direct(NamedTuple):
    """Differences that reach a single row each.

    Attributes:
        rows: which.  int64 [pairs]
        places: which differences.  int64 [pairs]
        weights: how much each counts.  float32 [pairs]
    """

    rows: Array
    places: Array
    weights: Array


def push(
    graph: GrowingGraph, nodes: Array, *, direct: Direct, others: Array, loops: bool
) -> Pushed:
    """Push the differences of some nodes, the first of which is number 0, along their edges.

    A row's differences stand in a fixed order, whichever code puts them there.

    nodes: who gives something else, ascending, each once, int64 [n]; direct: differences beside
    these; others: rows that are to be among those found, int64 [m]; loops: whether nodes gather
    from themselves

    >>> import torch
    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
    >>> nobody = Direct(*(np.empty(0, np.int64) for _ in range(3)))
    >>> pushed = push(path, np.array([0]), direct=nobody, others=np.array([2]), loops=True)
    >>> pushed.rows, pushed.indptr, pushed.places
    (array([0, 1, 2]), array([0, 1, 2, 2]), array([0, 0]))
    """
    compiled = graph.compiled
    return (_push_compiled if compiled else _push)(graph, nodes, direct, others, loops)


def _push(graph: GrowingGraph, nodes: Array, direct: Direct, others: Array, loops: bool) -> Pushed:
    indptr, near, weights = graph.giving(nodes)
    numbers = np.arange(len(nodes))
    own = nodes if loops else nodes[:0]
    owners = np.concatenate([near, own, direct.rows])
    places = np.concatenate(
        [np.repeat(numbers, np.diff(indptr)), numbers[: len(own)], direct.places]
    )
    counted = np.concatenate([weights, np.ones(len(own), np.float32), direct.weights])
    rows = graph.distinct(np.concatenate([nodes, others, owners]))
    where = np.searchsorted(rows, owners)
    order = np.argsort(where, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=len(rows)))])
    return Pushed(rows, starts, places[order], counted[order].astype(np.float32))


def _push_compiled(
    graph: GrowingGraph, nodes: Array, direct: Direct, others: Array, loops: bool
) -> Pushed:
    from evergraph.online.graph.live_kernels import count_pushed, fill_pushed

    starts, counts, pool, weights = graph.gathered
    pairs = int(counts[nodes].sum()) + loops * len(nodes) + len(direct.rows)
    rows = np.empty(pairs + len(nodes) + len(others), np.int64)
    tally = graph.tally
    found = count_pushed(nodes, starts, counts, pool, direct.rows, others, loops, tally, rows)
    rows = np.sort(rows[:found]) if found * SORTED < len(tally) else np.flatnonzero(tally)
    indptr, places = np.empty(found + 1, np.int64), np.empty(pairs, np.int64)
    given = np.empty(pairs, np.float32)
    weighed = np.empty(0, np.float32) if weights is None else weights
    fill_pushed(
        nodes, starts, counts, pool, weighed, *direct, loops, rows, tally, indptr, places, given
    )
    return Pushed(rows, indptr, places, given)
