"""Sorted lists of neighbours, one per node, that can be changed in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.online.graph.growing_array import GrowingArray

Array = npt.NDArray[Any]

_ROW = 32  # bits that an entry's row is shifted by, so that row and column make one number
_LEAST_POOL = 64


class NeighbourLists:
    """For every row the columns listed in it, ascending, none twice.

    Lists lie in one pool, each with room to spare. One that outgrows its room moves to the end of
    the pool; what it leaves is lost until the pool itself is full, and all lists are packed into a
    new one of twice the size. So a change costs what the lists it changes hold, and over many
    changes an entry is moved a constant number of times.

    >>> lists = NeighbourLists()
    >>> lists.extend(3)
    >>> lists.insert(np.array([1, 1, 2]), np.array([2, 0, 1]))  # rows with something new
    array([1, 2])
    >>> indptr, indices = lists.rows(np.array([2, 1]))
    >>> indptr.tolist(), indices.tolist()
    ([0, 1, 3], [1, 0, 2])
    """

    def __init__(self) -> None:
        self._starts = GrowingArray(dtype=np.int64)
        self._counts = GrowingArray(dtype=np.int64)
        self._rooms = GrowingArray(dtype=np.int64)
        self._pool: Array = np.empty(0, np.int32)
        self._end = 0  # of what the pool has given out
        self.num_entries = 0

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def nbytes(self) -> int:
        """How many bytes lists and the columns in them take, the room for more left out."""
        columns = (self._starts, self._counts, self._rooms)
        return sum(c.nbytes for c in columns) + self._pool.itemsize * self.num_entries

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
        return indptr, self._pool[_places(self._starts.array[rows], counts)]

    def lists(self, rows: Array, columns: Array) -> Array:
        """Return whether each row lists a column.  [pairs], [pairs] -> bool [pairs]"""
        known, wanted = self._listed(np.unique(rows)), _keys(rows, columns)
        return _among(wanted, known, np.searchsorted(known, wanted))

    def insert(self, rows: Array, columns: Array) -> Array:
        """List columns in rows, and return those rows that did not list them all before."""
        owners, wanted = np.unique(rows), np.unique(_keys(rows, columns))
        known = self._listed(owners)
        places = np.searchsorted(known, wanted)
        fresh = ~_among(wanted, known, places)
        self._rewrite(owners, np.insert(known, places[fresh], wanted[fresh]))
        return np.unique(wanted[fresh] >> _ROW)

    def delete(self, rows: Array, columns: Array) -> None:
        """Take columns off the lists of rows."""
        owners, gone = np.unique(rows), np.unique(_keys(rows, columns))
        known = self._listed(owners)
        self._rewrite(owners, known[~_among(known, gone, np.searchsorted(gone, known))])

    def clear(self, rows: Array) -> None:
        """Empty some rows for good."""
        self.num_entries -= int(self.lengths(rows).sum())
        self._counts.array[rows] = 0
        self._rooms.array[rows] = 0

    def _listed(self, owners: Array) -> Array:
        """Return the entries of some rows, given in order, as ascending keys."""
        indptr, columns = self.rows(owners)
        return _keys(np.repeat(owners, np.diff(indptr)), columns)

    def _rewrite(self, owners: Array, keys: Array) -> None:
        """Put entries in the place of all that the owners list; both ascend."""
        counts = np.bincount(np.searchsorted(owners, keys >> _ROW), minlength=len(owners))
        self.num_entries += len(keys) - int(self.lengths(owners).sum())
        self._make_room(owners, counts)
        self._counts.array[owners] = counts
        self._pool[_places(self._starts.array[owners], counts)] = keys & (2**_ROW - 1)

    def _make_room(self, rows: Array, counts: Array) -> None:
        """Move rows to the end of the pool where they have no room for so many columns."""
        tight = counts > self._rooms.array[rows]
        rooms = _roomy(counts)
        if self._end + int(rooms[tight].sum()) > len(self._pool):
            self._repack(int(rooms.sum()))
            tight = counts > self._rooms.array[rows]  # lists that had shrunk have lost room
        moved, rooms = rows[tight], rooms[tight]
        self._starts.array[moved] = self._end + np.cumsum(rooms) - rooms
        self._rooms.array[moved] = rooms
        self._end += int(rooms.sum())

    def _repack(self, needed: int) -> None:
        """Move all lists, in order, into a pool that is half empty."""
        counts = self._counts.array
        _, entries = self.rows(np.arange(len(self)))
        rooms = np.where(counts > 0, _roomy(counts), 0)
        starts = np.cumsum(rooms) - rooms
        self._end = int(rooms.sum())
        self._pool = np.empty(max(2 * (self._end + needed), _LEAST_POOL), np.int32)
        self._pool[_places(starts, counts)] = entries
        self._starts.array[:], self._rooms.array[:] = starts, rooms

    def state(self) -> dict[str, Tensor]:
        """Return all rows as CSR, the same however they lie.  int64 [rows + 1], int32 [entries]"""
        indptr, indices = self.rows(np.arange(len(self)))
        return {"indptr": torch.from_numpy(indptr), "indices": torch.from_numpy(indices)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        counts = state["indptr"].diff()
        self._starts.restore(state["indptr"][:-1])
        self._counts.restore(counts)
        self._rooms.restore(counts)
        self._pool = state["indices"].numpy().astype(np.int32)  # a copy
        self._end = self.num_entries = len(self._pool)


def turned(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the lists that tell who lists each row."""
    rows = len(state["indptr"]) - 1
    owners = np.repeat(np.arange(rows, dtype=np.int32), state["indptr"].diff().numpy())
    order = state["indices"].argsort(stable=True)
    counts = torch.bincount(state["indices"], minlength=rows)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return {"indptr": indptr, "indices": torch.from_numpy(owners)[order]}


def _keys(rows: Array, columns: Array) -> Array:
    keys: Array = (rows.astype(np.int64) << _ROW) | columns
    return keys


def _places(starts: Array, counts: Array) -> Array:
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
