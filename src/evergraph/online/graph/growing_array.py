"""Arrays that grow, and are read while they change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.mapped import is_mapped, page_out
from evergraph.graphs.kernels.scaled_rows import aligned
from evergraph.online.state_arrays import PIECE, Pieces, whole

Array = npt.NDArray[Any]
BYTES_PER_BLOCK = 1 << 24  # that are copied at a time


class GrowingArray:
    """An array to which rows are appended in amortised constant time.

    Capacity is doubled whenever it runs out. New rows are zero. Who overwrites wide rows other than
    by ``write`` calls ``changing`` first: a snapshot may be reading them (``lend``).

    >>> ages = GrowingArray(dtype=np.int64)
    >>> ages.extend(2)
    >>> ages.array[1] = 7
    >>> ages.extend(1)
    >>> ages.array.tolist()
    [0, 7, 0]
    """

    def __init__(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> None:
        self._room: Array = np.zeros((0, *shape), dtype)
        self.row_bytes = self._room.dtype.itemsize * math.prod(shape)
        self._length = 0
        self._loans: WeakSet[Loan] = WeakSet()  # a loan is over when nobody is going to read it

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Array:
        """The rows, as a view that is valid until the array grows.  [length, *shape]"""
        return self._room[: self._length]

    @property
    def tensor(self) -> Tensor:
        """The same view as a tensor."""
        return torch.from_numpy(self.array)

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take, without spare capacity."""
        return self._length * self.row_bytes

    def _allocate(self, rows: int) -> None:
        self._loans.clear()  # borrowers keep the old room, which nobody changes any more
        self._room = self._empty(rows)

    def _empty(self, rows: int) -> Array:
        """Return room in memory, by numpy, which takes larger pages than torch.

        Rows of whole cache lines begin with one, else all take one more.
        """
        room: Array = aligned(rows * self.row_bytes).view(self._room.dtype)
        return room.reshape(rows, *self._room.shape[1:])

    def moves(self, rows: int) -> bool:
        """Return whether adding so many rows would copy all to a larger allocation.

        >>> ages = GrowingArray(dtype=np.int64)
        >>> ages.extend(2)  # which makes room for four
        >>> ages.moves(2), ages.moves(3)
        (False, True)
        """
        return self._length + rows > len(self._room)

    def extend(self, rows: int) -> None:
        """Add rows of zeros."""
        length = self._length + rows
        if length > len(self._room):
            room = self._empty(2 * length)
            room[: self._length] = self.array
            self._room = room  # last: readers use it without a lock
            self._loans.clear()
        self._room[self._length : length] = 0
        self._length = length

    def replace(self) -> Tensor:
        """Take other room for the rows, all of which are to be written; return those that were."""
        former = self.tensor
        self._allocate(len(self._room))
        return former

    def write(self, positions: Tensor, rows: Any) -> Tensor:
        """Overwrite rows at int64 [n], and return what they were."""
        former = taken(self.tensor, positions)
        if len(positions):
            self.changing(positions.numpy())
            self.tensor[positions] = rows
        return former

    def lend(self, some: Array | None = None) -> Loan:
        """Return the current rows, or some, to be read slowly while rows are added and changed."""
        loan = Loan(self, some)
        self._loans.add(loan)
        return loan

    def changing(self, positions: Array) -> None:
        """Save rows that are about to be overwritten, if they are lent.  int64 [n]"""
        for loan in self._loans:
            loan.save(positions, self.tensor)

    def room(self, rows: int) -> Tensor:
        """Return uninitialised room for so many rows like these."""
        return torch.from_numpy(self._empty(rows))

    def restore(self, state: Tensor) -> None:
        """Copy rows into a new allocation, a block at a time."""
        assert state.shape[1:] == self._room.shape[1:]
        self._allocate(len(state))
        self._length = len(state)
        for part in blocks(len(state), BYTES_PER_BLOCK // max(self.row_bytes, 1)):
            self._room[part] = state[part].numpy()
            if is_mapped(state):
                page_out(state[part])


def blocks(rows: int, most: int) -> Iterator[slice]:
    """Yield ranges of at most so many rows, one after the other.

    >>> list(blocks(3, 2))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    most = max(most, 1)
    return (slice(start, min(start + most, rows)) for start in range(0, rows, most))


def taken(rows: Tensor, positions: Tensor) -> Tensor:
    """Return some rows, in half the time of an index.  [any, ...], int64 [n] -> [n, ...]"""
    return rows.index_select(0, positions)


class KeptArrays:
    """Base of what keeps arrays with a row for every position."""

    kept: dict[str, GrowingArray]  # those that are saved, by name

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield all arrays that are as long as the graph."""
        yield from self.kept.values()

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return everything kept, by name, as views in which later changes show, or in pieces."""
        return {name: array.tensor for name, array in self.kept.items()}

    def state(self) -> dict[str, Tensor]:
        """Return the same as arrays."""
        return whole(self.pieces())

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for name, array in self.kept.items():
            array.restore(state[name])


class Loan:
    """The rows of an array at one moment, or some of them, read while they change.

    Rows are saved before they are overwritten, unless they were read. One thread writes, one reads,
    without a lock: the reader copies rows first and then looks for saved ones.

    >>> ages = GrowingArray(dtype=np.int64)
    >>> ages.extend(2)
    >>> lent = ages.lend()
    >>> former = ages.write(torch.tensor([1]), 7)
    >>> lent.rows(np.array([1, 0])), ages.array
    (array([0, 0]), array([0, 7]))
    """

    def __init__(self, array: GrowingArray, some: Array | None = None) -> None:
        self._rows = array.array  # changes with the array until that moves elsewhere
        self._step = max(PIECE // max(array.row_bytes, 1), 1)
        self._wanted = np.full(len(array), some is None)  # to be read, and not saved
        if some is not None:
            self._wanted[some] = True
        self._saved: list[tuple[Array, Array]] = []  # positions, ascending, and their rows

    def save(self, positions: Array, rows: Tensor) -> None:
        """Save rows that are about to be overwritten.  int64 [n]; all rows of the array"""
        known = np.sort(positions[positions < len(self._wanted)])
        first = known[self._wanted[known]]
        if len(first):
            self._saved.append((first, rows[torch.from_numpy(first)].numpy()))
            self._wanted[first] = False

    def rows(self, positions: Array) -> Array:
        """Return a copy of some of the rows as they were.  int64 [n] -> [n, ...]"""
        rows = self._rows[positions]
        for saved_positions, saved in tuple(self._saved):
            index = np.searchsorted(saved_positions, positions)
            index = np.minimum(index, len(saved_positions) - 1)
            changed = saved_positions[index] == positions
            rows[changed] = saved[index[changed]]
        return rows

    def of_all(self) -> Pieces:
        """Return all rows as they were, to be read once."""
        rows = torch.from_numpy(self._rows)
        return Pieces(tuple(rows.shape), rows.dtype, self._pieces)

    def _pieces(self) -> Iterator[Tensor]:
        for start in range(0, len(self._rows), self._step):
            part = slice(start, start + self._step)
            rows = self._rows[part].copy()
            for positions, saved in tuple(self._saved):
                some = slice(*np.searchsorted(positions, [start, start + len(rows)]))
                rows[positions[some] - start] = saved[some]
            self._wanted[part] = False
            yield torch.from_numpy(rows)


class StoredPart(NamedTuple):
    """A part of all vectors as it lies in memory: row v is ``rows[v] - own[v] * shown[v]``.

    ``own`` and ``shown`` are empty if nothing is subtracted.
    """

    rows: Array  # float32 [positions, width]
    unit: bool = False  # whether a vector has it scaled to unit length
    given: bool = False  # whether it is the features themselves, which change only if updated
    own: Array = np.empty(0, np.float32)  # [positions]
    shown: Array = np.empty((0, 0), np.float32)  # [positions, width]
