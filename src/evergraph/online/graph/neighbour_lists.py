"""Sorted neighbour lists, one per node, changed in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.online.arrays import (
    Array,
    GrowingArray,
    KeptArrays,
    Packing,
    check_kind,
    check_values,
    must,
)

_ROW = 32  # bits by which an entry's row is shifted, so that row and column make one sortable key
_COLUMN = 2**_ROW - 1
_PER_PASS = 1 << 20  # entries at a time in passes over all lists
COMPILED_FROM = 200_000  # entries, see decision 105


def is_compiled(entries: int) -> bool:
    """Whether compiled code is used for a growing adjacency with so many entries.

    Below, nobody waits for a compiler. The bits of a row's sum depend on this, so it must not
    depend on the width of values or the size of a change.
    """
    return entries >= COMPILED_FROM


class Lists(NamedTuple):
    """The storage of neighbour lists."""

    starts: Array  # of each list in the pool.  int64 [rows]
    counts: Array  # length of each list.  int64 [rows]
    pool: Array  # columns, with gaps between lists.  int32 [room]
    weights: Array | None  # parallel to the pool, None if all are 1.  float32 [room]


class NeighbourLists(KeptArrays):
    """For every row its columns, ascending and distinct.

    Lists lie in one pool, each with spare capacity. A list that outgrows it moves to the end of the
    pool. The gap it leaves is lost until the pool is full; then all lists are packed into a new
    pool of twice the size. So over many changes an entry is moved a constant number of times.

    Weights are kept in a second pool, from the first that is not 1.

    >>> lists = NeighbourLists()
    >>> lists.extend(3)
    >>> lists.insert(np.array([1, 1, 2]), np.array([2, 0, 1]))  # rows with something new
    array([1, 2])
    >>> indptr, indices = lists.rows(np.array([2, 1]))
    >>> indptr.tolist(), indices.tolist()
    ([0, 1, 3], [1, 0, 2])
    >>> lists.insert(np.array([1]), np.array([2]), np.array([0.5], np.float32))
    array([1])
    >>> lists.weights(np.array([2, 1]))
    array([1. , 1. , 0.5], dtype=float32)
    """

    def __init__(self) -> None:
        self._starts = GrowingArray(dtype=np.int64)
        self._counts = GrowingArray(dtype=np.int64)
        self._rooms = GrowingArray(dtype=np.int64)
        self.kept = {"starts": self._starts, "counts": self._counts, "rooms": self._rooms}
        self._pool: Array = np.empty(0, np.int32)
        self._weights: Array | None = None  # float32, as long as the pool
        self._end = 0  # of the used part of the pool
        self.num_entries = 0

    @property
    def entry_bytes(self) -> int:
        """How many bytes all entries take, without spare capacity."""
        return (4 if self._weights is None else 8) * self.num_entries

    @property
    def weighted(self) -> bool:
        """Whether an entry has ever weighed anything but 1."""
        return self._weights is not None

    def storage(self) -> Lists:
        """Return the storage of all lists, as views that are valid until a list changes."""
        return Lists(self._starts.array, self._counts.array, self._pool, self._weights)

    def extend(self, rows: int) -> None:
        """Add empty rows."""
        for column in self.kept.values():
            column.extend(rows)

    def lengths(self, rows: Array) -> Array:
        """Return the lengths of some rows.  int64 [rows]"""
        lengths: Array = self._counts.array[rows]
        return lengths

    def rows(self, rows: Array) -> tuple[Array, Array]:
        """Return some rows as CSR.  -> int64 [rows + 1], int32 [entries]"""
        starts, counts = self._starts.array[rows], self._counts.array[rows]
        return np.concatenate([[0], np.cumsum(counts)]), self._pool[_pool_index(starts, counts)]

    def weights(self, rows: Array) -> Array:
        """Return the weights of the entries of some rows, in their order.  float32 [entries]"""
        starts, counts = self._starts.array[rows], self._counts.array[rows]
        if self._weights is None:
            return np.ones(int(counts.sum()), np.float32)
        weights: Array = self._weights[_pool_index(starts, counts)]
        return weights

    def weigh(self, rows: Array, columns: Array) -> Array:
        """Return the weights of columns in rows, 0 for absent entries.  -> float32 [pairs]"""
        keys = _keys(rows, columns)
        owners = distinct(rows)
        known = self._keys_of(owners)
        index = np.searchsorted(known, keys)
        exists = is_at(index, keys, known)
        weights = np.zeros(len(keys), np.float32)
        weights[exists] = self.weights(owners)[index[exists]]
        return weights

    def mutual(self, other: NeighbourLists, rows: Array) -> tuple[Array, Array, Array]:
        """Return the entries of rows that other lists have too, and the products of both weights.

        rows: ascending, int64 [n] -> rows and columns, int64 [entries], products, float64 [entries]
        """
        keys = self._keys_of(rows)
        weights = self.weights(rows).astype(np.float64)
        if other is self:
            return keys >> _ROW, keys & _COLUMN, weights**2
        other_keys = other._keys_of(rows)
        index = np.searchsorted(other_keys, keys)
        mutual = is_at(index, keys, other_keys)
        keys = keys[mutual]
        products = weights[mutual] * other.weights(rows)[index[mutual]]
        return keys >> _ROW, keys & _COLUMN, products

    def insert(self, rows: Array, columns: Array, weights: Array | None = None) -> Array:
        """Insert columns into rows, and return the rows that changed, ascending.  int64 [changed]

        weights: the last of a repeated entry counts, and 0 deletes it. If None, new entries weigh 1
        and known ones keep their weight.  float32 [pairs]
        """
        keys = _keys(rows, columns)
        if weights is not None and not weights.all():
            keys, weights = _last_of_each(keys, weights)
            deleted = keys[weights == 0]
            changed = self._insert(keys[weights > 0], weights[weights > 0])
            return np.union1d(changed, self.delete(deleted >> _ROW, deleted & _COLUMN))
        return self._insert(keys, weights)

    def _insert(self, keys: Array, weights: Array | None) -> Array:
        keys, new_weights = _last_of_each(keys, weights)
        owners = distinct(keys >> _ROW)
        known = self._keys_of(owners)
        known_weights = self.weights(owners)
        index = np.searchsorted(known, keys)
        exists = is_at(index, keys, known)
        other = np.zeros(len(keys), np.bool_)  # entries that exist with another weight
        if weights is not None:
            other[exists] = known_weights[index[exists]] != new_weights[exists]
            known_weights[index[other]] = new_weights[other]
        if self._weights is None and ((known_weights != 1).any() or (new_weights != 1).any()):
            self._weights = np.ones(len(self._pool), np.float32)
        self._rewrite(
            owners,
            np.insert(known, index[~exists], keys[~exists]),
            np.insert(known_weights, index[~exists], new_weights[~exists]),
        )
        return distinct(keys[~exists | other] >> _ROW)

    def delete(self, rows: Array, columns: Array) -> Array:
        """Delete columns from rows, and return the rows that changed, ascending."""
        keys = distinct(_keys(rows, columns))
        owners = distinct(rows)
        known = self._keys_of(owners)
        deleted = is_at(np.searchsorted(keys, known), known, keys)
        self._rewrite(owners, known[~deleted], self.weights(owners)[~deleted])
        return distinct(known[deleted] >> _ROW)

    def detach(self, nodes: Array, mirror: NeighbourLists) -> Array:
        """Delete nodes from all rows of the transposed lists, and return the rows that changed."""
        indptr, columns = self.rows(nodes)
        return mirror.delete(columns, np.repeat(nodes, np.diff(indptr)))

    def clear(self, rows: Array) -> None:
        """Empty some rows for good."""
        self.num_entries -= int(self.lengths(rows).sum())
        self._counts.array[rows] = 0
        self._rooms.array[rows] = 0

    def _keys_of(self, owners: Array) -> Array:
        """Return the entries of some rows, given in order, as ascending keys."""
        indptr, columns = self.rows(owners)
        return _keys(np.repeat(owners, np.diff(indptr)), columns)

    def _rewrite(self, owners: Array, keys: Array, weights: Array) -> None:
        """Replace all entries of the owners; owners and keys ascend."""
        counts = np.bincount(np.searchsorted(owners, keys >> _ROW), minlength=len(owners))
        self.num_entries += len(keys) - int(self.lengths(owners).sum())
        self._make_room(owners, counts)
        self._counts.array[owners] = counts
        index = _pool_index(self._starts.array[owners], counts)
        self._pool[index] = keys & _COLUMN
        if self._weights is not None:
            self._weights[index] = weights

    def _make_room(self, rows: Array, counts: Array) -> None:
        """Move rows to the end of the pool that lack capacity."""
        tight, rooms = counts > self._rooms.array[rows], _roomy(counts)
        if not tight.any():
            return
        if self._end + int(rooms[tight].sum()) > len(self._pool):
            self._repack(int(rooms.sum()))
            # Packing takes spare capacity from shrunk lists.
            tight = counts > self._rooms.array[rows]
        moved, rooms = rows[tight], rooms[tight]
        lengths, old = self.lengths(moved), self._starts.array[moved]
        self._starts.array[moved] = self._end + np.cumsum(rooms) - rooms
        source, target = _pool_index(old, lengths), _pool_index(self._starts.array[moved], lengths)
        self._pool[target] = self._pool[source]
        if self._weights is not None:
            self._weights[target] = self._weights[source]
        self._rooms.array[moved] = rooms
        self._end += int(rooms.sum())

    def _repack(self, needed: int) -> None:
        """Move all lists, in order, into a pool that is half empty."""
        counts = self._counts.array
        rooms = np.where(counts > 0, _roomy(counts), 0)
        starts = np.cumsum(rooms) - rooms
        self._end = int(rooms.sum())
        pool = np.empty(2 * (self._end + needed), np.int32)
        weights = np.ones(len(pool), np.float32) if self.weighted else None
        for rows in _blocks(np.concatenate([[0], np.cumsum(counts)])):
            index = _pool_index(starts[rows], counts[rows])
            pool[index] = self.rows(rows)[1]
            if weights is not None:
                weights[index] = self.weights(rows)
        self._pool, self._weights = pool, weights
        self._starts.array[:] = starts
        self._rooms.array[:] = rooms

    def state(self) -> dict[str, Tensor]:
        """Return all rows as CSR: int64 [rows + 1], int32 [entries], and weights if one is not 1."""
        every = np.arange(len(self._counts))
        indptr, indices = self.rows(every)
        state = {"indptr": torch.from_numpy(indptr), "indices": torch.from_numpy(indices)}
        if self.weighted:
            state["weights"] = torch.from_numpy(self.weights(every))
        return state

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        state = self.state()
        ends = state["indptr"][-1:]  # rows of removed nodes are empty
        starts = nodes.rows(state["indptr"][:-1])
        indices = nodes.places[state["indices"].long()].int()
        return state | {"indptr": torch.cat([starts, ends]), "indices": indices}

    def restore(self, state: dict[str, Tensor]) -> None:
        check_lists(state)
        counts = state["indptr"].diff()
        self._starts.restore(state["indptr"][:-1])
        self._counts.restore(counts)
        self._rooms.restore(counts)
        self._pool = state["indices"].numpy().astype(np.int32)  # a copy
        weights = state.get("weights")
        self._weights = None if weights is None else weights.numpy().astype(np.float32)
        self._end = self.num_entries = len(self._pool)


def check_lists(state: dict[str, Tensor]) -> None:
    """Raise unless arrays are those of lists, of which compiled code may then read any entry."""
    indptr, indices = state["indptr"], state["indices"]
    check_kind("indptr", indptr, torch.empty(0, dtype=torch.int64))
    check_kind("indices", indices, torch.empty(0, dtype=torch.int32))
    check_values("indices", indices, 0, below=len(indptr) - 1)
    ends = len(indptr) and int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
    rule = f"ascend from 0 to the {len(indices):,} entries of indices"
    must("indptr", ends and not bool((indptr.diff() < 0).any()), rule)
    starts = torch.zeros(len(indices) + 1, dtype=torch.bool)
    starts[indptr] = True
    falls = (indices.diff() <= 0) & ~starts[1:-1]
    must("indptr", not bool(falls.any()), "be of rows that ascend in indices")
    if (weights := state.get("weights")) is not None:
        check_kind("weights", weights, torch.empty(0))
        fits = len(weights) == len(indices) and bool(((weights >= 0) & weights.isfinite()).all())
        must("weights", fits, "hold a finite number of 0 or more for each of indices")


def _last_of_each(keys: Array, values: Array | None) -> tuple[Array, Array]:
    """Return distinct keys, ascending, with the last value of each; 1 if there are no values."""
    if values is None:
        keys = distinct(keys)
        return keys, np.ones(len(keys), np.float32)
    keys, last = np.unique(keys[::-1], return_index=True)
    return keys, values[::-1][last]


def distinct(values: Array) -> Array:
    """Return the distinct values, ascending: in less time than ``np.unique``, which may hash them.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    ordered: Array = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _blocks(indptr: Array) -> Iterator[Array]:
    """Yield all rows in order, in blocks of about ``_PER_PASS`` entries."""
    ends = np.searchsorted(indptr, np.arange(_PER_PASS, indptr[-1], _PER_PASS), side="right")
    yield from np.split(np.arange(len(indptr) - 1), np.unique(ends))


def _keys(rows: Array, columns: Array) -> Array:
    keys: Array = (rows.astype(np.int64) << _ROW) | columns
    return keys


def _pool_index(starts: Array, counts: Array) -> Array:
    """Return the index in the pool of every entry of some lists, list by list."""
    before = np.cumsum(counts) - counts
    index: Array = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return index


def is_at(index: Array, values: Array, known: Array) -> Array:
    """Return which values are among known ones.  index: where, among these, they would be inserted"""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    equal: Array = known[np.minimum(index, len(known) - 1)] == values
    return equal


def _roomy(counts: Array) -> Array:
    """Return the capacity for lists of these lengths: half as much again, and two."""
    rooms: Array = counts + counts // 2 + 2
    return rooms
