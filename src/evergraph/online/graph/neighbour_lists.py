"""Sorted lists of neighbours, one per node, that can be changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.graphs.kernels.scaled_rows import numba_works
from evergraph.online.graph.growing_array import FormerRows, GrowingArray
from evergraph.online.pieces import Pieces, whole

Array = npt.NDArray[Any]

_ROW = 32  # bits that an entry's row is shifted by, so that row and column make one number
_COLUMN = 2**_ROW - 1
_LEAST_POOL = 64
_ENTRIES = 1 << 20  # that are looked at together where all are


# From so many entries on, a list of changes is followed by compiled code. Below, numpy takes about
# as long, less the second or so that numba takes to be imported.
NUMBA_FOLLOWS_FROM = 100_000


def is_compiled(entries: int) -> bool:
    """Whether changes beside so many entries of a growing adjacency are followed by compiled code.

    The width of what is summed and the size of a change are not asked for: how a row is summed
    depends on the graph alone.

    >>> is_compiled(1000)
    False
    """
    return entries >= NUMBA_FOLLOWS_FROM and numba_works()


class Entries(NamedTuple):
    """Entries of an adjacency that weigh more or less than before.

    Attributes:
        rows: who gathers.  int64 [entries]
        columns: from whom.  int64 [entries]
        differences: by how much more; an entry that came weighed 0 before, one that went weighs 0
            now.  float32 [entries]
    """

    rows: Array
    columns: Array
    differences: Array

    @property
    def owners(self) -> Array:
        """The rows that are others now, ascending, each once.  int64 [owners]"""
        distinct: Array = np.unique(self.rows)
        return distinct

    def and_(self, *later: Entries) -> Entries:
        """Return these and others: differences of an entry that stands twice add up."""
        return Entries(*(np.concatenate(parts) for parts in zip(self, *later, strict=True)))

    def below(self, position: int) -> Entries:
        """Return those of rows and columns before a position."""
        kept = (self.rows < position) & (self.columns < position)
        return Entries(*(part[kept] for part in self))


def no_entries() -> Entries:
    """Return none."""
    nobody = np.empty(0, np.int64)
    return Entries(nobody, nobody, np.empty(0, np.float32))


class Lists(NamedTuple):
    """Lists as they lie, in views that are good until one changes.

    Attributes:
        starts, counts: where each begins in the pool, and how long it is.  int64 [rows]
        pool: columns, and room between.  int32 [room]
        weights: beside the pool, None where all are 1.  float32 [room]
    """

    starts: Array
    counts: Array
    pool: Array
    weights: Array | None


class NeighbourLists:
    """For every row the columns listed in it, ascending, none twice.

    Lists lie in one pool, each with room to spare. One that outgrows its room moves to the end of
    the pool; what it leaves is lost until the pool itself is full, and all lists are packed into a
    new one of twice the size. So a change costs what the lists it changes hold, and over many
    changes an entry is moved a constant number of times.

    An entry weighs 1. From the first weight on that is another, all weights lie in a second pool
    beside the first; before, there is none.

    Whoever has asked how the lists lie (``shared``) may go on reading them: a list that changes
    after that moves to the end of the pool first, and where it was is noted in ``former``.

    >>> lists = NeighbourLists()
    >>> lists.extend(3)
    >>> lists.insert(np.array([1, 1, 2]), np.array([2, 0, 1])).owners  # with something new
    array([1, 2])
    >>> indptr, indices = lists.rows(np.array([2, 1]))
    >>> indptr.tolist(), indices.tolist()
    ([0, 1, 3], [1, 0, 2])
    >>> lists.insert(np.array([1]), np.array([2]), np.array([0.5], np.float32)).differences
    array([-0.5], dtype=float32)
    >>> lists.weights(np.array([2, 1]))
    array([1. , 1. , 0.5], dtype=float32)
    """

    def __init__(self) -> None:
        self._starts = GrowingArray(dtype=np.int64)
        self._counts = GrowingArray(dtype=np.int64)
        self._rooms = GrowingArray(dtype=np.int64)
        self._pool: Array = np.empty(0, np.int32)
        self._weights: Array | None = None  # float32, as long as the pool
        self._end = 0  # of what the pool has given out
        self._kept = 0  # what lies before this is not overwritten: somebody may be reading it
        self.former = FormerRows()  # where lists began, and how long they were.  int64 [rows, 2]
        self.num_entries = 0

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def entry_bytes(self) -> int:
        """How many bytes the columns in all lists take, the room for more left out."""
        return (4 if self._weights is None else 8) * self.num_entries

    @property
    def weighted(self) -> bool:
        """Whether an entry has ever weighed anything but 1."""
        return self._weights is not None

    def lying(self) -> Lists:
        """Return all lists as they lie, for compiled code."""
        return Lists(self._starts.array, self._counts.array, self._pool, self._weights)

    def shared(self) -> Lists:
        """Return all lists as they lie, for those who read them while they change."""
        self._kept = self._end
        return self.lying()

    def extend(self, rows: int) -> None:
        """Add empty rows."""
        for column in (self._starts, self._counts, self._rooms):
            column.extend(rows)

    def lengths(self, rows: Array) -> Array:
        """Return how many columns some rows list.  int64 [rows]"""
        lengths: Array = self._counts.array[rows]
        return lengths

    def rows(self, rows: Array) -> tuple[Array, Array]:
        """Return some rows as CSR.  -> int64 [rows + 1], int32 [entries]"""
        counts = self.lengths(rows)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return indptr, self._pool[places_of(self._starts.array[rows], counts)]

    def weights(self, rows: Array) -> Array:
        """Return what the entries of some rows weigh, in their order.  float32 [entries]"""
        counts = self.lengths(rows)
        if self._weights is None:
            return np.ones(int(counts.sum()), np.float32)
        weights: Array = self._weights[places_of(self._starts.array[rows], counts)]
        return weights

    def lists(self, rows: Array, columns: Array) -> Array:
        """Return whether each row lists a column.  [pairs], [pairs] -> bool [pairs]"""
        if self._compiled:
            return self._located(_keys(rows, columns))[1]
        known, wanted = self._listed(np.unique(rows)), _keys(rows, columns)
        return _among(wanted, known, np.searchsorted(known, wanted))

    def weigh(self, rows: Array, columns: Array) -> Array:
        """Return what columns weigh in rows, 0 where they are not listed.  -> float32 [pairs]"""
        owners = np.unique(rows)
        known, wanted = self._listed(owners), _keys(rows, columns)
        places = np.searchsorted(known, wanted)
        there = _among(wanted, known, places)
        found = np.zeros(len(wanted), np.float32)
        found[there] = self.weights(owners)[places[there]]
        return found

    def insert(self, rows: Array, columns: Array, weights: Array | None = None) -> Entries:
        """List columns in rows, and return what is other now.

        weights: of the entries, the last counting of one that comes twice; unless given, new ones
        weigh 1 and known ones what they did.  float32 [pairs]
        """
        if weights is not None or self._weights is not None:
            return self._insert_weighted(_keys(rows, columns), weights)
        wanted = np.unique(_keys(rows, columns))
        if self._compiled:
            fresh = self._merged(wanted)
        else:
            owners = np.unique(rows)
            known = self._listed(owners)
            places = np.searchsorted(known, wanted)
            new = ~_among(wanted, known, places)
            fresh = wanted[new]
            self._rewrite(owners, np.insert(known, places[new], fresh))
        return _entries(fresh, np.ones(len(fresh), np.float32))

    @property
    def _compiled(self) -> bool:
        """Whether lists are changed in place by compiled code; the same lists either way."""
        return self._weights is None and is_compiled(self.num_entries)

    def _merged(self, wanted: Array) -> Array:
        """List entries where they are not yet, and return which were not.  ascending keys"""
        from evergraph.online.graph.live_kernels import merge

        places, there = self._located(wanted)
        fresh, places = wanted[~there], places[~there]
        rows, columns = fresh >> _ROW, fresh & _COLUMN
        owners, more = np.unique(rows, return_counts=True)
        self._make_room(owners, self.lengths(owners) + more)
        merge(self._starts.array, self._counts.array, self._pool, rows, columns, places)
        self.num_entries += len(fresh)
        return fresh

    def _located(self, keys: Array) -> tuple[Array, Array]:
        """Return where entries stand in their lists, or would, and whether they do."""
        from evergraph.online.graph.live_kernels import locate

        places, there = np.empty(len(keys), np.int64), np.empty(len(keys), np.bool_)
        lists = self._starts.array, self._counts.array, self._pool
        locate(*lists, keys >> _ROW, keys & _COLUMN, places, there)
        return places, there

    def _insert_weighted(self, keys: Array, weights: Array | None) -> Entries:
        """Do the same of entries that weigh something, given by their keys."""
        wanted, given = last_of_each(keys, weights)
        owners = np.unique(wanted >> _ROW)
        known, weighs = self._listed(owners), self.weights(owners)
        places = np.searchsorted(known, wanted)
        there = _among(wanted, known, places)
        fresh, other = ~there, there.copy()
        other[there] = False if weights is None else weighs[places[there]] != given[there]
        differences = given.copy()
        differences[other] -= weighs[places[other]]
        weighs[places[other]] = given[other]
        self._begin_weights(weighs, given[fresh])
        merged = np.insert(weighs, places[fresh], given[fresh])
        self._rewrite(owners, np.insert(known, places[fresh], wanted[fresh]), merged)
        return _entries(wanted[fresh | other], differences[fresh | other])

    def _begin_weights(self, *given: Array) -> None:
        """Keep weights from the first one on that is not 1."""
        if self._weights is None and any((part != 1).any() for part in given):
            self._weights = np.ones(len(self._pool), np.float32)

    def delete(self, rows: Array, columns: Array) -> Entries:
        """Take columns off the lists of rows, and return what is other now."""
        gone = np.unique(_keys(rows, columns))
        if self._compiled:
            return self._dropped(gone)
        owners = np.unique(rows)
        known = self._listed(owners)
        kept = ~_among(known, gone, np.searchsorted(gone, known))
        weights = self.weights(owners)
        self._rewrite(owners, known[kept], None if self._weights is None else weights[kept])
        return _entries(known[~kept], -weights[~kept])

    def _dropped(self, keys: Array) -> Entries:
        """Do the same by compiled code, of ascending keys."""
        from evergraph.online.graph.live_kernels import drop

        places, there = self._located(keys)
        gone = keys[there]
        owners = np.unique(gone >> _ROW)
        self._make_room(owners, self.lengths(owners))
        lists = self._starts.array, self._counts.array, self._pool
        drop(*lists, gone >> _ROW, places[there])
        self.num_entries -= len(gone)
        return _entries(gone, np.full(len(gone), -1, np.float32))

    def clear(self, rows: Array) -> None:
        """Empty some rows for good."""
        self._note(rows)
        self.num_entries -= int(self.lengths(rows).sum())
        self._counts.array[rows] = 0
        self._rooms.array[rows] = 0

    def _listed(self, owners: Array) -> Array:
        """Return the entries of some rows, given in order, as ascending keys."""
        indptr, columns = self.rows(owners)
        return _keys(np.repeat(owners, np.diff(indptr)), columns)

    def _rewrite(self, owners: Array, keys: Array, weights: Array | None = None) -> None:
        """Put entries in the place of all that the owners list; owners and keys ascend."""
        counts = np.bincount(np.searchsorted(owners, keys >> _ROW), minlength=len(owners))
        self.num_entries += len(keys) - int(self.lengths(owners).sum())
        self._make_room(owners, counts)
        self._counts.array[owners] = counts
        places = places_of(self._starts.array[owners], counts)
        self._pool[places] = keys & _COLUMN
        if self._weights is not None:
            self._weights[places] = weights

    def _make_room(self, rows: Array, counts: Array) -> None:
        """Move rows to the end of the pool where they have no room for so many columns.

        And where somebody may be reading them.
        """
        self._note(rows)
        tight = self._tight(rows, counts)
        rooms = _roomy(counts)
        if self._end + int(rooms[tight].sum()) > len(self._pool):
            self._repack(int(rooms.sum()))
            tight = self._tight(rows, counts)  # lists that had shrunk have lost room
        moved, rooms = rows[tight], rooms[tight]
        lengths, old = self.lengths(moved), self._starts.array[moved]
        self._starts.array[moved] = self._end + np.cumsum(rooms) - rooms
        source, target = places_of(old, lengths), places_of(self._starts.array[moved], lengths)
        self._pool[target] = self._pool[source]
        if self._weights is not None:
            self._weights[target] = self._weights[source]
        self._rooms.array[moved] = rooms
        self._end += int(rooms.sum())

    def _tight(self, rows: Array, counts: Array) -> Array:
        kept: Array = self._starts.array[rows] < self._kept
        return kept | (counts > self._rooms.array[rows])

    def _note(self, rows: Array) -> None:
        """Note where lists lie, before that changes."""
        if self._kept:
            lying = np.stack([self._starts.array[rows], self._counts.array[rows]], axis=1)
            self.former.note(rows, lying)

    def _repack(self, needed: int) -> None:
        """Move all lists, in order, into a pool that is half empty."""
        counts = self._counts.array
        rooms = np.where(counts > 0, _roomy(counts), 0)
        starts = np.cumsum(rooms) - rooms
        self._end = int(rooms.sum())
        pool = np.empty(max(2 * (self._end + needed), _LEAST_POOL), np.int32)
        weights = np.ones(len(pool), np.float32) if self.weighted else None
        for rows in _blocks(np.concatenate([[0], np.cumsum(counts)])):
            places = places_of(starts[rows], counts[rows])
            pool[places] = self.rows(rows)[1]
            if weights is not None:
                weights[places] = self.weights(rows)
        self._pool, self._weights = pool, weights
        # In other room: who reads the old pool reads where lists lay in it, and nothing newer.
        self._counts.restore(torch.from_numpy(counts))
        self._starts.restore(torch.from_numpy(starts))
        self._rooms.array[:] = rooms
        self.former, self._kept = FormerRows(), 0

    def state(self) -> dict[str, Tensor]:
        """Return all rows as CSR, the same however they lie.  int64 [rows + 1], int32 [entries]

        Where some weigh anything but 1, also what each weighs.  float32 [entries]
        """
        return whole(self.pieces())

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return the same, entries of some rows at a time: lists are not held twice."""
        indptr = np.concatenate([[0], np.cumsum(self._counts.array)])

        def entries(dtype: torch.dtype, of: Callable[[Array], Array]) -> Pieces:
            return Pieces(
                (self.num_entries,),
                dtype,
                lambda: (torch.from_numpy(of(rows)) for rows in _blocks(indptr)),
            )

        kept: dict[str, Tensor | Pieces] = {"indptr": torch.from_numpy(indptr)}
        kept["indices"] = entries(torch.int32, lambda rows: self.rows(rows)[1])
        if self.weighted:
            kept["weights"] = entries(torch.float32, self.weights)
        return kept

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield from (self._starts, self._counts, self._rooms)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        counts = state["indptr"].diff()
        self._starts.restore(state["indptr"][:-1])
        self._counts.restore(counts)
        self._rooms.restore(counts)
        self._pool = state["indices"].numpy().astype(np.int32)  # a copy
        weights = state.get("weights")
        self._weights = None if weights is None else weights.numpy().astype(np.float32)
        self._end = self.num_entries = len(self._pool)
        self.former, self._kept = FormerRows(), 0


def turned(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the lists that tell who lists each row."""
    rows = len(state["indptr"]) - 1
    owners = np.repeat(np.arange(rows, dtype=np.int32), state["indptr"].diff().numpy())
    order = state["indices"].argsort(stable=True)
    counts = torch.bincount(state["indices"], minlength=rows)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    kept = {"indptr": indptr, "indices": torch.from_numpy(owners)[order]}
    return kept | {"weights": state["weights"][order]} if "weights" in state else kept


def last_of_each(keys: Array, values: Array | None) -> tuple[Array, Array]:
    """Return keys once each, ascending, and the value that each was given last; 1 unless given.

    >>> last_of_each(np.array([7, 5, 7]), np.array([1, 2, 3], np.float32))
    (array([5, 7]), array([2., 3.], dtype=float32))
    """
    if values is None:
        distinct = np.unique(keys)
        return distinct, np.ones(len(distinct), np.float32)
    distinct, places = np.unique(keys[::-1], return_index=True)
    return distinct, values[::-1][places]


def _blocks(indptr: Array) -> Iterator[Array]:
    """Yield all rows in order, those of about ``_ENTRIES`` entries at a time."""
    ends = np.searchsorted(indptr, np.arange(_ENTRIES, indptr[-1], _ENTRIES), side="right")
    yield from np.split(np.arange(len(indptr) - 1), np.unique(ends))


def _entries(keys: Array, differences: Array) -> Entries:
    return Entries(keys >> _ROW, keys & _COLUMN, differences)


def _keys(rows: Array, columns: Array) -> Array:
    keys: Array = (rows.astype(np.int64) << _ROW) | columns
    return keys


def places_of(starts: Array, counts: Array) -> Array:
    """Return where every entry of some lists lies, list by list."""
    before = np.cumsum(counts) - counts
    places: Array = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return places


def _among(keys: Array, others: Array, places: Array) -> Array:
    """Return which keys stand among ascending others.  places: where they would be put there."""
    if not len(others):
        return np.zeros(len(keys), dtype=bool)
    found: Array = others[np.minimum(places, len(others) - 1)] == keys
    return found


def _roomy(counts: Array) -> Array:
    """Return how much room lists of such lengths get: half as much again, and a little."""
    rooms: Array = counts + counts // 2 + 2
    return rooms
