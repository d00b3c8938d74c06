"""An array that grows at its end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.mapped import is_mapped, page_out
from evergraph.online.array_storage import ArrayStorage, RoomFile, paged

Array = npt.NDArray[Any]
BLOCK = 1 << 24  # bytes that are copied at a time
STEP = 1 << 20  # bytes by which a file grows at the least


class GrowingArray:
    """Rows that are added at the end, at a cost that does not grow with how many there are.

    Room is doubled whenever it runs out: over its life a row is copied about once. Rows are zero
    when they come.

    With ``map_to`` the rows lie in a file and come into memory as they are looked at; nothing that
    is computed from them changes.

    Args:
        shape: of a row; none for single values.
        dtype: of the values.

    >>> ages = GrowingArray(dtype=np.int64)
    >>> ages.extend(2)
    >>> ages.array[1] = 7
    >>> ages.extend(1)
    >>> ages.array.tolist()
    [0, 7, 0]
    """

    def __init__(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> None:
        self._room: Array = np.zeros((0, *shape), dtype)
        self._length = 0
        self._storage: ArrayStorage | None = None  # where the room lies in a file
        self._file: RoomFile | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Array:
        """The rows, in a view that is good until the array grows.  [length, *shape]"""
        if self._storage is not None:
            self._storage.tidy()  # whoever asks is about to look at pages
        return self._room[: self._length]

    @property
    def tensor(self) -> Tensor:
        """The same view as a tensor."""
        if self._storage is None:
            return torch.from_numpy(self.array)
        return paged(self.array, self._storage)

    @property
    def row_bytes(self) -> int:
        """How many bytes a row takes."""
        return self._room.dtype.itemsize * math.prod(self._room.shape[1:])

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take, the room for more left out."""
        return self._length * self.row_bytes

    @property
    def is_in_file(self) -> bool:
        """Whether the rows lie in a file."""
        return self._storage is not None

    def map_to(self, storage: ArrayStorage) -> None:
        """Let the rows lie in a file from now on, with what is there and what comes."""
        rows = self.array
        self._storage = storage
        self._begin(len(rows))
        for part in _blocks(len(rows), self.row_bytes):
            self._room[part] = rows[part]
            storage.tidy()

    def _begin(self, length: int) -> None:
        """Make room for so many rows, whatever was there."""
        if self._storage is None:
            self._room = np.empty((length, *self._room.shape[1:]), self._room.dtype)
        else:
            self._file = RoomFile(self._storage)  # not the old one: somebody may be reading it
            self._room = self._mapped(length)
        self._length = length

    def _mapped(self, rows: int) -> Array:
        """Return room for so many rows in the file; those that are there stay."""
        assert self._file is not None
        size = rows * self.row_bytes
        room = self._file.grow(size).view(self._room.dtype)
        return room.reshape(rows, *self._room.shape[1:])

    def reserve(self, rows: int) -> None:
        """See to it that so many rows can be added without claiming more of a disk."""
        length = self._length + rows
        if self._storage is not None and length > len(self._room):
            # Nothing is copied, so there is no need to double; what is claimed is the disk's.
            self._room = self._mapped(length + length // 4 + STEP // max(self.row_bytes, 1))

    def moves(self, rows: int) -> int:
        """Return how many bytes are copied into other room where so many rows are added.

        >>> ages = GrowingArray(dtype=np.int64)
        >>> ages.extend(2)  # which makes room for four
        >>> ages.moves(2), ages.moves(3)
        (0, 16)
        """
        grows = self._storage is None and self._length + rows > len(self._room)
        return self.nbytes if grows else 0

    def extend(self, rows: int) -> None:
        """Add rows of zeros."""
        self.reserve(rows)
        length = self._length + rows
        if length > len(self._room):
            room: Array = np.zeros((2 * length, *self._room.shape[1:]), self._room.dtype)
            room[: self._length] = self.array
            self._room = room
        self._length = length

    def state(self) -> Tensor:
        """Return the rows: a view, in which what happens later shows; copy what you keep."""
        return self.tensor

    def restore(self, state: Tensor) -> None:
        """Take back a copy of what ``state`` returned, a block at a time."""
        assert state.shape[1:] == self._room.shape[1:]
        self._begin(len(state))
        for part in _blocks(len(state), self.row_bytes):
            self._room[part] = state[part].numpy()
            if is_mapped(state):
                page_out(state[part])
            if self._storage is not None:
                self._storage.tidy()


def _blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    step = max(BLOCK // max(row_bytes, 1), 1)
    return (slice(start, start + step) for start in range(0, rows, step))


class Link:
    """One change: which rows it was of, what they were, and the link of the change after it.

    The last link is empty until the next change comes.
    """

    __slots__ = ("following", "positions", "rows")

    def __init__(self) -> None:
        self.following: Link | None = None
        self.positions: Array = np.empty(0, np.int64)
        self.rows: Array = np.empty(0)


class FormerRows:
    """A chain of what rows were, noted before they are changed.

    Whoever holds a link sees all that was noted since; links that nobody holds are gone. One thread
    notes, any number read without a lock: a row is copied first, and then looked for among those
    that were noted, so a row that was changed meanwhile is found there.

    >>> ages, former = np.array([30, 40]), FormerRows()
    >>> then = former.now
    >>> former.note(np.array([1]), ages[[1]])
    >>> ages[1] = 41
    >>> as_of(then, np.array([0, 1]), ages[[0, 1]])
    array([30, 40])
    """

    def __init__(self) -> None:
        self.now = Link()

    def note(self, positions: Array, rows: Array) -> None:
        """Note what rows are, before they are changed.  int64 [n], [n, ...]"""
        if not len(positions):
            return
        order = np.argsort(positions, kind="stable")
        link, following = self.now, Link()
        link.positions, link.rows = positions[order], rows[order]
        link.following = following  # the last step: who reads meanwhile sees all of it or nothing
        self.now = following


def as_of(link: Link, positions: Array, rows: Array) -> Array:
    """Put back what has changed since a link was the last, in a copy of rows; return it.

    positions: of the rows.  int64 [n], [n, ...]
    """
    left = np.ones(len(positions), dtype=bool)
    while (following := link.following) is not None:
        places = np.minimum(np.searchsorted(link.positions, positions), len(link.positions) - 1)
        found = left & (link.positions[places] == positions)
        if found.any():
            rows[found] = link.rows[places[found]]
            left &= ~found  # what was noted first is what it was then
        link = following
    return rows


@dataclass(frozen=True, eq=False)
class FrozenRows:
    """An array as it was when this was made; new rows may come meanwhile, and rows change.

    Attributes:
        array: the array, whose changes are noted.
        link: the last one then.
        length: how many rows there were.

    >>> ages, former = GrowingArray(dtype=np.int64), FormerRows()
    >>> ages.extend(2)
    >>> frozen = FrozenRows(ages, former.now, len(ages))
    >>> former.note(np.array([1]), ages.array[[1]])
    >>> ages.array[1] = 7
    >>> frozen.of(np.array([1, 0])), frozen.every()
    (array([0, 0]), array([0, 0]))
    """

    array: GrowingArray
    link: Link
    length: int

    def of(self, positions: Array) -> Array:
        """Return some rows as they were: a copy.  int64 [n] -> [n, ...]"""
        return as_of(self.link, positions, self.array.array[positions])

    def every(self) -> Array:
        """Return all rows as they were: a copy."""
        return self.of(np.arange(self.length))
