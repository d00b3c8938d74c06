"""The normalised adjacency Â of a growing graph: rows of Z = Â V, summed or corrected.

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
from typing import NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.graphs.kernels.products import listed_product
from evergraph.graphs.kernels.row_ranges import in_parts
from evergraph.graphs.kernels.scaled_rows import room
from evergraph.graphs.propagation import ordered_product
from evergraph.online.arrays import Array, GrowingArray, KeptArrays, blocks, taken
from evergraph.online.graph.growing_graph import GrowingGraph, index_in
from evergraph.online.graph.neighbour_lists import Entries, distinct

ROUNDING = 2.0**-24  # largest relative error of rounding to float32
# Relative to a row's largest value; above it a row is recomputed. Errors that all have the same
# sign need 64 corrections to reach it.
DRIFT = 64 * ROUNDING
ROWS_PER_BLOCK = 1024  # of differences, so that they stay in the processor's cache
_ROW = 32  # bits by which a row is shifted, so that row and number make one sortable key


class LiveSmoother(KeptArrays):
    """Â = D^-1/2 (A + sI) D^-1/2 of a growing graph, multiplied some rows at a time.

    A holds the weights of edges, D the sums of the rows of A + sI.

    A row is summed in the order of its neighbours' positions, so that its bits depend neither on
    the storage of the graph nor on the rows it is computed with. For the same reason the choice of
    the kernel depends on the size of the whole graph only.  self_loops: whether s is 1, else 0

    >>> pair, smoother = GrowingGraph(num_features=1), LiveSmoother()
    >>> change = pair.add(torch.tensor([[1.], [3.]]), torch.tensor([[0], [1]]))
    >>> smoother.refresh(pair, change.new)
    >>> smoother.product(pair, torch.tensor([1]), pair.features)
    tensor([[2.0000]])
    """

    def __init__(self, *, self_loops: bool = True) -> None:
        self.self_loops = self_loops
        self._scalings = GrowingArray()  # the diagonal of D^-1/2
        self.kept = {"scalings": self._scalings}
        # Nodes of the last refresh, and their scalings before it.
        self._refreshed = (np.empty(0, np.int64), np.empty(0, np.float32))

    def refresh(self, graph: GrowingGraph, nodes: Tensor) -> None:
        """Update the scalings of nodes that are new or whose in-neighbours changed."""
        self._scalings.follow(graph.num_nodes)
        nodes = nodes.sort().values
        former = self._scalings.write(nodes, self._scalings_of(graph, nodes.numpy()))
        self._refreshed = nodes.numpy(), former.numpy()

    def _scalings_of(self, graph: GrowingGraph, nodes: Array) -> Tensor:
        """Return D^-1/2 of some nodes.  int64 [n] -> float32 [n]"""
        degrees = counts = graph.into.lengths(nodes)
        if graph.weighted:
            # One by one in the order of entries, so that bits do not depend on the other rows.
            owners = np.repeat(np.arange(len(nodes)), counts)
            degrees = np.bincount(owners, graph.into.weights(nodes), minlength=len(nodes))
        degrees = degrees + int(self.self_loops)
        # In float64 and by sqrt, which rounds correctly on every machine; a power need not.
        inverse = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
        return torch.from_numpy(np.where(degrees > 0, inverse, 0.0).astype(np.float32))

    @property
    def scalings(self) -> Array:
        """The diagonal of D^-1/2.  float32 [positions], a view until there are more"""
        return self._scalings.array

    @property
    def changed(self) -> tuple[Array, Array, Array]:
        """All scalings, the nodes of the last refresh, ascending, and what theirs were."""
        return self._scalings.array, *self._refreshed

    def now_and_before(self, nodes: Array) -> tuple[Array, Array]:
        """Return scalings of ascending nodes, and before the last refresh.  2 x float64 [n]"""
        now = self._scalings.array[nodes].astype(np.float64)
        before = now.copy()
        known, were = self._refreshed  # few
        where = index_in(nodes, known)
        before[where[where >= 0]] = were[where >= 0]
        return now, before

    def rows(self, graph: GrowingGraph, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        starts, columns = graph.rows(nodes)
        weights = graph.weights(nodes) if graph.weighted else None
        if self.self_loops:  # the last entry of its row
            columns = np.insert(columns, starts[1:], nodes.numpy())
            weights = None if weights is None else np.insert(weights, starts[1:], 1)
            starts = starts + np.arange(len(starts))
        values = np.repeat(self._scalings.array[nodes.numpy()], np.diff(starts))
        if weights is not None:
            values = values * weights
        values = values * self._scalings.array[columns]
        starts = starts.astype(np.int32)
        return torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values)

    def product(
        self, graph: GrowingGraph, nodes: Tensor, values: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Return some rows of Â V, in ``out`` if it is given.  [positions, d] -> [nodes, d]"""
        if len(nodes) and graph.compiled:
            from evergraph.graphs.kernels.numba_sum import ListedRows

            lists, positions = graph.into.lying(), nodes.numpy()
            starts = lists.starts[positions]
            rows = ListedRows(
                starts,
                starts + lists.counts[positions],
                lists.pool,
                self._scalings.array[positions],
                self._scalings.array,
                positions if self.self_loops else positions[:0],
                len(lists.pool) - 1,
                () if lists.weights is None else lists.weights,
            )
            out = room(len(nodes), like=values) if out is None else out
            listed_product(rows, values, out)
            return out
        found = values[:0]
        if len(nodes):
            found = ordered_product(*self.rows(graph, nodes), values)
        return found if out is None else out.copy_(found)


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
