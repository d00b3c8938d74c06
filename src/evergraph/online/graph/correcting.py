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
from evergraph.graphs.kernels.scaled_rows import room
from evergraph.online.graph.growing_array import GrowingArray, blocks, taken
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_smoother import ROUNDING, LiveSmoother, index_in
from evergraph.online.graph.neighbour_lists import Entries, distinct

Array = npt.NDArray[Any]
ROWS_PER_BLOCK = 1024  # of differences, so that they stay in the processor's cache
_ROW = 32  # bits by which a row is shifted, so that row and number make one sortable key


class ChangedRows:
    """Rows that changed.

    Args:
        nodes: positions, ascending.  int64 [n]
        before: old rows, float32 [n, width]; or returns them, which is rarely called and valid
            until the next change.
    """

    def __init__(self, nodes: Tensor, before: Tensor | Callable[[], Tensor]) -> None:
        self.nodes = nodes
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


class Differences(NamedTuple):
    """Differences of messages, one row each."""

    rows: Array  # float32 [n, width]
    sizes: Array  # the largest absolute value of each.  float32 [n]


def differences(
    smoother: LiveSmoother, sent: ChangedRows, nodes: Array, values: Tensor, direct: Direct
) -> Differences:
    """Return what messages differ by: d_u of nodes, then r_u m_u, as they were, of direct columns.

    sent: messages that changed; nodes: of these, and those whose factor r did, ascending, int64
    [n]; values: all current messages, [positions, width]
    """
    every = np.concatenate([nodes, direct.columns])
    now, was = smoother.now_and_before(nodes)
    _, former = smoother.now_and_before(direct.columns)
    new, old = np.append(now, np.zeros_like(former)), np.append(was, -former)
    where = index_in(sent.nodes.numpy(), every)
    same = where < 0  # the message did not change, only its factor
    new[same], old[same] = new[same] - old[same], 0
    before = sent.before if len(sent.nodes) else values.new_zeros(1, values.shape[1])
    places, earlier = torch.from_numpy(every), torch.from_numpy(where).clamp_min(0)
    factors = [torch.from_numpy(each)[:, None] for each in (new, old)]
    rows, sizes = room(len(every), like=values), torch.empty(len(every))
    for part in blocks(len(every), ROWS_PER_BLOCK):
        gaps = taken(values, places[part]).double().mul_(factors[0][part])
        gaps.addcmul_(taken(before, earlier[part]).double(), factors[1][part], value=-1)
        rows[part] = gaps
        sizes[part] = rows[part].abs().amax(1)
    return Differences(rows.numpy(), sizes.numpy())


class Pushed(NamedTuple):
    """For every affected row the differences that reach it, as CSR."""

    rows: Array  # positions, ascending, each once.  int64 [rows]
    indptr: Array  # start of each row's differences.  int64 [rows + 1]
    places: Array  # indices of differences.  int64 [pairs]
    weights: Array  # of the differences.  float32 [pairs]


def push(
    graph: GrowingGraph, nodes: Array, *, direct: Entries, others: Array, loops: bool
) -> Pushed:
    """Push the differences of nodes, numbered from 0, along their edges.

    nodes: whose messages changed, ascending, each once, int64 [n]; direct: further differences that
    reach a single row each, with their numbers as columns; others: rows to include, int64 [m];
    loops: whether nodes have self-loops

    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
    >>> nobody = Entries(*(np.empty(0, np.int64) for _ in range(3)))
    >>> pushed = push(path, np.array([0]), direct=nobody, others=np.array([2]), loops=True)
    >>> pushed.rows, pushed.indptr, pushed.places
    (array([0, 1, 2]), array([0, 1, 2, 2]), array([0, 0]))
    """
    starts, near = graph.out_of.rows(nodes)
    numbers, own = np.arange(len(nodes)), nodes if loops else nodes[:0]
    reached = np.concatenate([near, own, direct.rows])
    places = [np.repeat(numbers, np.diff(starts)), numbers[: len(own)], direct.columns]
    weights = np.ones(len(reached), np.float32)
    if graph.weighted:
        weights[: len(near)] = graph.out_of.weights(nodes)
    weights[len(near) + len(own) :] = direct.differences
    keys = np.sort((reached << _ROW) | np.arange(len(reached)))
    reached, order = keys >> _ROW, keys & (2**_ROW - 1)
    rows = distinct(np.concatenate([nodes, others, reached]))
    indptr = np.append(np.searchsorted(reached, rows), len(reached))
    return Pushed(rows, indptr, np.concatenate(places)[order], weights[order])


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
) -> None:
    """Correct rows of ``states`` in place.

    Rows are recomputed instead where correcting them would cost as much, where they are new, and
    where rounding errors might show.

    source: all messages, [positions, width]; found, pushed: differences of these, and which of them
    reach which rows; drift: the bound on the rounding error of each row, float32 [positions]; new:
    added nodes, int64 [new]; most: the largest bound, relative to a row's largest value
    """
    first = int(new[0]) if len(new) else graph.num_nodes
    work = _correct_compiled if graph.compiled else _correct
    work(graph, smoother, source, found, pushed, states.array, drift, first=first, most=most)


def _correct(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    source: Tensor,
    found: Differences,
    pushed: Pushed,
    values: Array,
    drift: Array,
    *,
    first: int,
    most: float,
) -> None:
    """Correct rows; see the compiled form."""
    nodes = pushed.rows
    used, columns = np.unique(pushed.places, return_inverse=True)
    given = (pushed.weights.astype(np.float64), columns.reshape(-1), pushed.indptr)
    matrix = scipy.sparse.csr_matrix(given, shape=(len(nodes), len(used)))
    left, were = smoother.now_and_before(nodes)
    degrees = graph.into.lengths(nodes) + int(smoother.self_loops)
    anew = (np.diff(pushed.indptr) >= degrees) | (were == 0) | (nodes >= first)
    ratios = left / np.where(were == 0, 1, were)
    sums = left[:, None] * (matrix @ found.rows[used].astype(np.float64))
    corrected = (ratios[:, None] * values[nodes] + sums).astype(np.float32)
    reached = left * (abs(matrix) @ found.sizes[used].astype(np.float64))
    tops = np.abs(corrected).max(1, initial=0)
    rounded = np.where(ratios == 1, tops, 2 * tops) + 6 * reached
    bounds = (ratios * drift[nodes] + ROUNDING * rounded).astype(np.float32)
    anew |= bounds > np.float32(most) * tops
    values[nodes[~anew]], drift[nodes[~anew]] = corrected[~anew], bounds[~anew]
    again = nodes[anew]
    values[again] = smoother.product(graph, torch.from_numpy(again), source).numpy()
    drift[again] = 0


def _correct_compiled(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    source: Tensor,
    found: Differences,
    pushed: Pushed,
    values: Array,
    drift: Array,
    *,
    first: int,
    most: float,
) -> None:
    from evergraph.graphs.kernels.numba_sum import Flat
    from evergraph.online.graph import live_kernels as kernels

    width, (*lists, weights) = values.shape[1], graph.into.lying()
    given = (
        pushed,
        Flat(found.rows.reshape(-1), width),
        found.sizes,
        Flat(source.numpy().reshape(-1), width),
        (*lists, () if weights is None else weights),
        kernels.Scalings(*smoother.changed),
        kernels.SumRule(int(smoother.self_loops), first, np.float32(most), ROUNDING),
        kernels.SumState(values.reshape(-1), drift, width),
    )
    in_parts(
        lambda some: kernels.correct(*given, some.start, some.stop),
        np.diff(pushed.indptr) + 3,
        each=width,
    )
