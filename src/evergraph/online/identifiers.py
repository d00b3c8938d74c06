"""Tables of the user's ids and the positions they have in arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, DuplicateNodeError, UnknownNodeError
from evergraph.core.targets import LARGEST as LARGEST
from evergraph.core.targets import check_id as check_id
from evergraph.core.targets.base import are_names
from evergraph.online.delta import CHUNK, Column, NodeId, as_numbers, chunks, listed
from evergraph.online.pieces import Pieces, whole

MANY = 10_000  # from so many ids on, building a look-up table pays
_GONE, _TEXT, _NUMBER = 0, 1, 2
_KINDS = {type(None): _GONE, str: _TEXT, int: _NUMBER}
_BLOCK = 1 << 16  # names in a piece of the state


def check_ids(what: str, *columns: Column) -> None:
    """Raise like ``check_id`` for the first invalid value; columns are checked row by row."""
    if not all(map(are_ids, columns)):
        for row in zip(*map(listed, columns), strict=True):
            for value in row:
                check_id(what, value)


def are_ids(column: Column) -> bool:
    """Whether all values of a column are valid ids, without a Python step for each."""
    if hasattr(column, "to_pylist"):
        return True  # Arrow's strings are UTF-8
    if isinstance(column, np.ndarray):
        return column.dtype == np.int64
    return all(map(are_names, chunks(column)))


def first_repeated(values: Sequence[NodeId], known: Iterable[NodeId] = ()) -> NodeId | None:
    """Return the first value that is known or came before, None if there is none."""
    seen = set(known)
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


class IdTable:
    """Names with positions in order of arrival, which start at 0 and are never reused.

    >>> table = IdTable()
    >>> table.add(["a", 7, "7"])
    >>> table.positions(["7", "a"]), table.at(1)
    (tensor([2, 0]), 7)
    >>> table.remove(["a"])
    >>> len(table), "a" in table
    (2, False)
    """

    def __init__(self) -> None:
        self._positions: dict[NodeId, int] = {}
        self._ids: list[NodeId | None] = []
        self._slots = NumberSlots()
        self.base = 0  # number of positions used before the last packing, see ``page``

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, value: object) -> bool:
        return type(value) in (str, int) and value in self._positions

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._positions)

    def page(self, start: int, limit: int) -> tuple[list[NodeId], int | None]:
        """Return names from a cursor on, and the next cursor, None at the end.

        Following the cursors meets each name once, whatever is added and removed meanwhile. After
        positions were renumbered (see ``Packing``), a caller must start again from 0: cursors
        returned since then are at least ``base``, and earlier ones are less.
        """
        if 0 < start < self.base:
            raise DataError(
                f"start must be 0, not {start}: nodes were renumbered since it was returned"
            )
        first = max(start - self.base, 0)
        end = first + limit
        found = [value for value in self._ids[first:end] if value is not None]
        return found, self.base + end if end < len(self._ids) else None

    @property
    def next(self) -> int:
        """The position of the next name."""
        return len(self._ids)

    def position(self, value: NodeId) -> int:
        """Return the position of a name, or raise if it is unknown."""
        if (found := self._positions.get(value)) is None:
            raise self.unknown(value)
        return found

    def unknown(self, value: NodeId) -> UnknownNodeError:
        """Return the error for an unknown name, with names that may have been meant.

        >>> ids = IdTable()
        >>> ids.add(["customer/0"])
        >>> ids.unknown(0)
        UnknownNodeError("node 0 is not in the graph: did you mean 'customer/0'?")
        """
        some = self._ids[:: len(self._ids) // 1024 + 1]
        kinds = dict.fromkeys(name.rpartition("/")[0] for name in some if isinstance(name, str))
        meant: list[NodeId] = [str(value), *(f"{kind}/{value}" for kind in kinds if kind)]
        if isinstance(value, str) and value.isdecimal():
            meant.append(int(value))
        close = [repr(name) for name in meant if name != value and name in self][:3]
        hint = f": did you mean {' or '.join(close)}?" if close else ""
        return UnknownNodeError(f"node {value!r} is not in the graph{hint}")

    def positions(self, values: Column) -> Tensor:
        """Return the positions of names; raise if one is unknown.  -> int64 [values]"""
        found = self.where(values)
        if len(found) and int(found.min()) < 0:
            raise self.unknown(listed(values)[int(found.argmin())])
        return found

    def where(self, values: Column, *others: Mapping[NodeId, int]) -> Tensor:
        """Return the positions of names, -1 for unknown ones.  -> int64 [values]

        others: positions of further names.
        """
        if len(values) >= MANY and hasattr(values, "dictionary_encode"):
            coded = values.dictionary_encode()
            places = self.where(coded.dictionary.to_pylist(), *others).numpy()
            return torch.from_numpy(places[coded.indices.to_numpy(zero_copy_only=False)])
        if not len(values):
            return torch.empty(0, dtype=torch.int64)
        numbers = as_numbers(values)
        if numbers is None:
            found = _looked_up(self._positions, listed(values))
        else:
            found = self._slots.where(numbers)
            if self._slots.outside:
                _fill(found, values, self._positions)
        for other in filter(len, others):
            _fill(found, values if numbers is None else numbers, other)
        return torch.from_numpy(found)

    def at(self, position: int) -> NodeId:
        """Return the name at a position that is in use."""
        value = self._ids[position]
        assert value is not None, f"position {position} is free"
        return value

    def has_none_of(self, values: Iterable[NodeId]) -> bool:
        """Whether all of these names are unknown."""
        return self._positions.keys().isdisjoint(values)

    def add(self, values: Sequence[NodeId]) -> None:
        """Add new names at the next positions; nothing is added if one of them is known."""
        start = len(self._ids)
        new = {value: position for position, value in enumerate(values, start)}
        if len(new) < len(values) or not self.has_none_of(values):
            twice = first_repeated(values, self._positions)
            raise DuplicateNodeError(f"node {twice!r} is in the graph already")
        self._positions.update(new)
        self._ids.extend(values)
        self._give_slots(values, start)

    def _give_slots(self, values: Sequence[NodeId | None], start: int) -> None:
        kinds = set(map(type, values))
        if kinds == {int}:
            self._slots.put(values, start)  # type: ignore[arg-type]
        elif int in kinds:
            numbers = [type(value) is int for value in values]
            places = start + np.flatnonzero(numbers)
            self._slots.put([*compress(values, numbers)], start, places=places)  # type: ignore[list-item]

    def remove(self, values: Sequence[NodeId]) -> None:
        """Remove names."""
        for value in values:
            self._ids[self._positions.pop(value)] = None
            if type(value) is int:
                self._slots.drop(value)

    def state(self) -> dict[str, Tensor]:
        """Return the names as arrays: kinds, lengths in bytes, and all bytes."""
        return whole(self.pieces())

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return the same in pieces, which show the names of this moment."""
        names = self._ids.copy()

        def made(make: Callable[[Sequence[NodeId | None]], Tensor]) -> Iterator[Tensor]:
            return map(make, chunks(names, _BLOCK))

        def kinds(ids: Sequence[NodeId | None]) -> Tensor:
            return torch.tensor([_KINDS[type(value)] for value in ids], dtype=torch.uint8)

        def lengths(ids: Sequence[NodeId | None]) -> Tensor:
            return torch.tensor([0 if v is None else len(str(v).encode()) for v in ids])

        def texts(ids: Sequence[NodeId | None]) -> Tensor:
            joined = "".join([str(value) for value in ids if value is not None]).encode()
            return torch.from_numpy(np.frombuffer(joined, np.uint8).copy())

        count, size = len(names), sum(map(len, made(texts)))
        return {
            "kinds": Pieces((count,), torch.uint8, partial(made, kinds)),
            "lengths": Pieces((count,), torch.int64, partial(made, lengths)),
            "bytes": Pieces((size,), torch.uint8, partial(made, texts)),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        data, ends = bytes(state["bytes"].numpy()), state["lengths"].cumsum(0).tolist()
        self._ids, self._slots = [], NumberSlots()
        for kind, start, end in zip(state["kinds"].tolist(), [0, *ends], ends, strict=False):
            text = data[start:end].decode()
            self._ids.append(None if kind == _GONE else int(text) if kind == _NUMBER else text)
        self._positions = {v: position for position, v in enumerate(self._ids) if v is not None}
        self._give_slots(self._ids, 0)


def _looked_up(positions: Mapping[NodeId, int], names: list[NodeId]) -> NDArray[np.int64]:
    found = np.empty(len(names), np.int64)
    for start, part in zip(range(0, len(names), CHUNK), chunks(names), strict=True):
        at = map(positions.get, part, repeat(-1))  # a chunk at a time: other threads may run
        found[start : start + len(part)] = np.fromiter(at, np.int64, len(part))
    return found


def _fill(found: NDArray[np.int64], names: Column, positions: Mapping[NodeId, int]) -> None:
    """Look up names that have not been found yet, in place."""
    missing = found < 0
    if len(positions) >= MANY and isinstance(names, np.ndarray):
        slots, numbers = NumberSlots(), as_numbers(list(positions))
        if numbers is not None:
            slots.put(numbers, 0, places=list(positions.values()))
        found[missing] = slots.where(names[missing])
        missing = found < 0
    if missing.any():
        found[missing] = _looked_up(positions, list(compress(listed(names), missing.tolist())))


Array = NDArray[np.int64]
SPREAD = 4  # slots per name at most, so that sparse numbers do not waste memory
LEAST = 1024


class NumberSlots:
    """An array that maps the numbers 0, 1, 2, ... to positions.

    Negative numbers and numbers that are too sparse have no slot and must be looked up elsewhere.
    """

    def __init__(self) -> None:
        self.outside = 0  # how many numbers have no slot
        self._slots = np.full(0, -1, dtype=np.int64)

    def put(self, numbers: Sequence[int] | Array, start: int, *, places: Any = None) -> None:
        """Add numbers at consecutive positions from ``start`` on, or at ``places``."""
        if not len(numbers):
            return
        found = np.array(numbers, dtype=np.int64)
        positions = start + np.arange(len(found)) if places is None else np.asarray(places)
        most = max(LEAST, SPREAD * (int(positions[-1]) + 1))
        near = (found >= 0) & (found < most)
        self.outside += int(len(found) - near.sum())
        if near.any():
            count = int(found[near].max()) + 1
            if count > len(self._slots):
                longer = np.full(max(count, 2 * len(self._slots)), -1, dtype=np.int64)
                longer[: len(self._slots)] = self._slots
                self._slots = longer
            self._slots[found[near]] = positions[near]

    def drop(self, number: int) -> None:
        """Remove a number."""
        if 0 <= number < len(self._slots):
            self._slots[number] = -1

    def where(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of numbers, -1 without a slot.  int64 [n] -> int64 [n]"""
        near = (numbers >= 0) & (numbers < len(self._slots))
        if near.all():
            return self._slots[numbers]
        found = np.full(len(numbers), -1, dtype=np.int64)
        found[near] = self._slots[numbers[near]]
        return found
