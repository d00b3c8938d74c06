"""Tables of the user's ids, and of targets, and the positions they have in arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, DuplicateNodeError, UnknownNodeError
from evergraph.core.targets import LARGEST as LARGEST
from evergraph.core.targets import Key
from evergraph.core.targets import check_id as check_id
from evergraph.core.targets.base import are_names
from evergraph.online.arrays import Packing, Saved, check_kind, must
from evergraph.online.delta import CHUNK, Column, NodeId, chunks, listed

CODED_FROM = 10_000  # ids, of which each distinct one is then looked up once


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


class IdTable(Saved):
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
        self.base = 0  # number of positions used before the last packing, see ``page``

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, value: object) -> bool:
        return type(value) in (str, int) and value in self._positions

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._positions)

    def page(self, start: int, limit: int) -> tuple[list[NodeId], int | None]:
        """Return names from a cursor on, and the next cursor, None at the end.

        Following the cursors meets each name once, whatever is added and removed meanwhile. Once
        positions were renumbered (see ``Packing``), earlier cursors are refused.
        """
        if 0 < start < self.base:
            raise DataError(
                f"start must be 0, not {start}: nodes were renumbered since it was returned"
            )
        first = max(start - self.base, 0)
        end = first + limit
        names = [value for value in self._ids[first:end] if value is not None]
        return names, self.base + end if end < len(self._ids) else None

    @property
    def next(self) -> int:
        """The position of the next name."""
        return len(self._ids)

    def position(self, value: NodeId) -> int:
        """Return the position of a name, or raise if it is unknown."""
        if (position := self._positions.get(value)) is None:
            raise self.unknown(value)
        return position

    def unknown(self, value: NodeId) -> UnknownNodeError:
        """Return the error for an unknown name, with names that may have been meant.

        >>> ids = IdTable()
        >>> ids.add(["customer/0"])
        >>> ids.unknown(0)
        UnknownNodeError("node 0 is not in the graph: did you mean 'customer/0'?")
        """
        sample = self._ids[:: len(self._ids) // 1024 + 1]
        prefixes = dict.fromkeys(
            name.rpartition("/")[0] for name in sample if isinstance(name, str)
        )
        candidates: list[NodeId] = [
            str(value),
            *(f"{prefix}/{value}" for prefix in prefixes if prefix),
        ]
        if isinstance(value, str) and value.isdecimal():
            candidates.append(int(value))
        suggestions = [repr(name) for name in candidates if name != value and name in self][:3]
        hint = f": did you mean {' or '.join(suggestions)}?" if suggestions else ""
        return UnknownNodeError(f"node {value!r} is not in the graph{hint}")

    def positions(self, values: Column) -> Tensor:
        """Return the positions of names; raise if one is unknown.  -> int64 [values]"""
        positions = self.where(values)
        if len(positions) and int(positions.min()) < 0:
            raise self.unknown(listed(values)[int(positions.argmin())])
        return positions

    def where(self, values: Column, *others: Mapping[NodeId, int]) -> Tensor:
        """Return the positions of names, -1 for unknown ones.  -> int64 [values]

        others: positions of further names.
        """
        distinct: Any = values
        rows: Any = slice(None)
        if len(values) >= CODED_FROM and hasattr(values, "dictionary_encode"):
            coded = values.dictionary_encode()
            distinct, rows = coded.dictionary, coded.indices.to_numpy(zero_copy_only=False)
        names = listed(distinct)
        positions = _looked_up(names, self._positions)
        for known in filter(None, others):
            missing = positions < 0
            if missing.any():
                positions[missing] = _looked_up([*compress(names, missing.tolist())], known)
        return torch.from_numpy(positions[rows])

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

    def remove(self, values: Sequence[NodeId]) -> None:
        """Remove names."""
        for value in values:
            self._ids[self._positions.pop(value)] = None

    def state(self) -> dict[str, Tensor]:
        """Return the names, null for removed ones, as JSON in an array of bytes."""
        return {"names": json_array(self._ids)}

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        return {"names": json_array([*map(self._ids.__getitem__, nodes.living.tolist())])}

    def restore(self, state: dict[str, Tensor]) -> None:
        names = listed_in("names", state)
        are_names = set(map(type, names)) <= {str, int, type(None)}
        self._ids = names
        self._positions = {v: position for position, v in enumerate(names) if v is not None}
        valid = are_names and len(self) == len(names) - names.count(None)
        must("names", valid, "hold texts and whole numbers, each once, and null")


def json_array(values: Sequence[Any]) -> Tensor:
    """Return values as JSON in an array of bytes, a chunk at a time: other threads may run."""
    parts = ",".join(json.dumps(part)[1:-1] for part in chunks(values))
    return torch.frombuffer(bytearray(f"[{parts}]".encode()), dtype=torch.uint8)


def listed_in(name: str, state: dict[str, Tensor]) -> list[Any]:
    """Return the values that ``json_array`` was given."""
    check_kind(name, state[name], torch.empty(0, dtype=torch.uint8))
    values = json.loads(state[name].numpy().tobytes())
    must(name, isinstance(values, list), "hold a list as JSON")
    listed_values: list[Any] = values
    return listed_values


def _looked_up(names: list[NodeId], known: Mapping[NodeId, int]) -> NDArray[np.int64]:
    """Return the positions of names, -1 for unknown ones."""
    positions = np.empty(len(names), np.int64)
    for start, part in zip(range(0, len(names), CHUNK), chunks(names), strict=True):
        at = map(known.get, part, repeat(-1))  # a chunk at a time: other threads may run
        positions[start : start + len(part)] = np.fromiter(at, np.int64, len(part))
    return positions


class TargetTable:
    """Distinct classes, sets of labels or numbers, with positions in order of arrival.

    ``Target.key`` tells what is equal.

    >>> table = TargetTable()
    >>> table.add([("art", "law"), ()])
    >>> table.positions([(), ("art", "law")]), table.at(0)
    (tensor([1, 0]), ('art', 'law'))
    """

    def __init__(self) -> None:
        self._positions: dict[Key, int] = {}
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __contains__(self, key: Any) -> bool:
        return key in self._positions

    def at(self, position: int) -> Any:
        """Return the target at a position."""
        return self._keys[position]

    def positions(self, keys: Sequence[Any]) -> Tensor:
        """Return the positions of known targets.  -> int64 [keys]"""
        return torch.tensor([self._positions[key] for key in keys], dtype=torch.int64)

    def add(self, keys: Sequence[Any]) -> None:
        """Add new targets at the next positions."""
        for key in keys:
            self._positions[key] = len(self._keys)
            self._keys.append(key)

    def state(self) -> dict[str, Tensor]:
        """Return the targets as JSON in an array of bytes."""
        return {"keys": json_array(self._keys)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._positions, self._keys = {}, []
        keys = listed_in("keys", state)
        self.add([tuple(key) if isinstance(key, list) else key for key in keys])
        must("keys", len(self._positions) == len(keys), "hold every target once")
