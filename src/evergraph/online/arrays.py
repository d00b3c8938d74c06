"""Arrays of a learner: they grow, are lent to readers, and are saved, checked and packed.

Snapshots may come from anywhere, and compiled code does not check indices. So whoever restores an
array says with ``must`` and ``check_values`` what it has to be.

Positions are never reused (see ``GrowingGraph``), so a learner holds empty rows for all nodes it
ever had. A purge leaves them out and renumbers positions (``Packing``). Nodes keep their order; so
sums that run in the order of positions give the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import is_mapped, page_out
from evergraph.graphs.kernels.scaled_rows import aligned

Array = npt.NDArray[Any]
BYTES_PER_BLOCK = 1 << 24  # that are copied at a time


class ArrayError(DataError):
    """An array of a snapshot is not what it must be.

    name: of the array, in the part that restores it; rule: what it must be
    """

    def __init__(self, name: str, rule: str) -> None:
        self.name, self.rule = name, rule
        super().__init__(f"array {name!r} must {rule}")


@contextmanager
def part_named(part: str) -> Iterator[None]:
    """Put the name of a part before those of arrays that are missing, or wrong."""
    try:
        yield
    except ArrayError as error:
        raise ArrayError(f"{part}.{error.name}", error.rule) from None
    except KeyError as error:
        raise ArrayError(f"{part}.{error.args[0]}", "be there") from None


def joined(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the arrays of parts, each after the name of its part; see ``part_of``.

    >>> joined({"labels": {"counts": torch.zeros(1)}})
    {'labels.counts': tensor([0.])}
    """
    return {f"{part}.{name}": value for part, kept in parts.items() for name, value in kept.items()}


def must(name: str, holds: object, rule: str) -> None:
    """Raise ``ArrayError`` unless something holds for an array."""
    if not holds:
        raise ArrayError(name, rule)


def check_values(name: str, values: Tensor, least: int, *, below: int) -> None:
    """Raise unless all numbers are at least ``least`` and below a limit.

    >>> check_values("numbers", torch.tensor([-1, 7]), -1, below=0)
    Traceback (most recent call last):
    evergraph.online.arrays.ArrayError: array 'numbers' must hold values from -1 to -1, not 7
    """
    if not values.numel():
        return
    low, high = int(values.min()), int(values.max())
    wrong = low if low < least else high
    rule = f"hold values from {least} to {below - 1}, not {wrong}"
    must(name, low >= least and high < below, rule)


def check_kind(name: str, value: Tensor, like: Tensor) -> None:
    """Raise unless an array has the type, and rows of the shape, of another."""
    must(name, value.dtype == like.dtype, f"have values of {like.dtype}, not {value.dtype}")
    width = tuple(like.shape[1:])
    fits = value.dim() and tuple(value.shape[1:]) == width
    must(name, fits, f"have rows of shape {width}, not {tuple(value.shape)}")


@dataclass(frozen=True, eq=False)
class Packing:
    """A renumbering of positions that hold a node, or of classes that a node has.

    >>> packing = Packing.of(torch.tensor([True, False, True]))
    >>> packing.living, packing.places
    (tensor([0, 2]), tensor([ 0, -1,  1, -1]))
    """

    living: Tensor  # what is kept, ascending.  int64 [kept]
    places: Tensor  # the new number of each, -1 for the others and, last, for -1.  int64 [all + 1]

    @classmethod
    def of(cls, alive: Tensor) -> Packing:
        """Return the packing that keeps what is alive.  bool [all]"""
        living = alive.nonzero().flatten()
        places = torch.full((len(alive) + 1,), -1)
        places[living] = torch.arange(len(living))
        return cls(living, places)

    def rows(self, values: Tensor) -> Tensor:
        """Return the rows of what is kept, of an array that may lack the last ones."""
        return values[self.living[self.living < len(values)]]


class Saved(ABC):
    """Part of a learner that a snapshot holds as arrays."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name; some are views in which later changes show."""

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        """Return ``state`` for the nodes and classes that are left, with their new numbers."""
        return self.state()

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; raise ``ArrayError`` if it cannot be that."""


@dataclass(frozen=True, eq=False)
class PackedState:
    """State of a learner without forgotten nodes, and classes that no node has, for a snapshot."""

    arrays: Mapping[str, Tensor]
    about: dict[str, Any]  # the rest, as JSON can hold it
    places: int  # how many positions were dropped


# Arrays of a head in closed form that have a row for every class.
OF_CLASSES = ("sums", "mass", "counts", "offsets", "class_weights", "chosen")


def of_classes(state: dict[str, Tensor], classes: Packing) -> dict[str, Tensor]:
    """Return the state of a head in closed form with some classes alone."""
    packed = dict(state)
    for name, value in state.items():
        what = name.rpartition(".")[2]
        if what in OF_CLASSES:
            packed[name] = classes.rows(value)
        elif what == "weights":  # V, which may not have the newest classes yet
            packed[name] = classes.rows(value.t()).t()
    return packed


def check_of_classes(state: Mapping[str, Tensor], classes: int) -> None:
    """Raise unless the arrays of a head in closed form have rows for at most so many classes."""
    for name, value in state.items():
        part, _, what = name.rpartition(".")
        if what in OF_CLASSES:
            must(name, len(value) <= classes, f"have at most {classes:,} rows, not {len(value):,}")
        if what in ("sums", "mass"):
            rows = len(state[f"{part}.counts"])
            must(name, len(value) == rows, f"have {rows:,} rows, not {len(value):,}")


class GrowingArray:
    """An array to which rows are appended in amortised constant time.

    Capacity is doubled whenever it runs out. New rows are zero.

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
        self._room[self._length : length] = 0
        self._length = length

    def append(self, rows: Any) -> None:
        """Add rows, an array or a tensor of them."""
        start = self._length
        self.extend(len(rows))
        self.array[start:] = rows

    def follow(self, rows: int, removed: Tensor | None = None) -> None:
        """Grow to so many rows, and erase those at some positions.  removed: int64 [n]"""
        self.extend(rows - self._length)
        if removed is not None and len(removed):
            self.tensor[removed] = 0

    def write(self, positions: Tensor, rows: Any) -> Tensor:
        """Overwrite rows at int64 [n], and return what they were."""
        former = taken(self.tensor, positions)
        if len(positions):
            self.tensor[positions] = rows
        return former

    def restore(self, state: Tensor) -> None:
        """Copy rows into a new allocation, a block at a time."""
        self._room = self._empty(len(state))
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


class KeptArrays(Saved):
    """Base of what keeps arrays with a row for every position."""

    kept: dict[str, GrowingArray]  # those that are saved, by name

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield all arrays that are as long as the graph."""
        yield from self.kept.values()

    def state(self) -> dict[str, Tensor]:
        return {name: array.tensor for name, array in self.kept.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, array in self.kept.items():
            check_kind(name, state[name], array.tensor)
            array.restore(state[name])

    def check_lengths(self, positions: int) -> None:
        """Raise unless there is a row for every position."""
        for name, array in self.kept.items():
            must(name, len(array) == positions, f"have {positions:,} rows, not {len(array):,}")

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        return {name: nodes.rows(value) for name, value in self.state().items()}


@dataclass(frozen=True, eq=False)
class Piece:
    """Columns of vectors that change together, and the nodes in which they have changed.

    Attributes:
        width: number of columns.
        rows: returns those of some nodes.  int64 [n] -> float32 [n, width]
        changed: nodes, int64 [n] each, until they are cleared.
    """

    width: int
    rows: Callable[[Array], Array]
    changed: list[Tensor] = field(default_factory=list)


class VectorPart(KeptArrays, ABC):
    """Base of what keeps a part of the vector of every position.

    Attributes:
        dims: width of the part.
    """

    dims: int

    @abstractmethod
    def rows(self, nodes: Array) -> Array:
        """Return the parts of some nodes, by NumPy, as one node is read by many calls.

        int64 [n] -> float32 [n, dims]
        """

    def of(self, nodes: Tensor) -> Tensor:
        """Return the same as a tensor.  int64 [n] -> float32 [n, dims]"""
        return torch.from_numpy(self.rows(nodes.numpy()))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """What a row consists of, side by side."""
        return (Piece(self.dims, self.rows),)


class LiveRows(VectorPart):
    """Base of parts of a vector that are kept as they are."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._rows = GrowingArray(dims)
        self.kept = {"rows": self._rows}

    def rows(self, nodes: Array) -> Array:
        return self._rows.array.take(nodes, axis=0)


class VectorChange(NamedTuple):
    """Some columns of vectors as they are now, zeros for removed nodes."""

    nodes: Tensor  # int64 [n]
    vectors: Tensor  # float32 [n, width]
    columns: slice
