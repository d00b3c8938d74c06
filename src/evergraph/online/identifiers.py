"""The user's own names, and the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from evergraph.core.errors import DataError, DuplicateNodeError, UnknownNodeError
from evergraph.online.delta import NodeId
from evergraph.online.pieces import Pieces, whole

LARGEST = 2**63 - 1  # what a journal and an array can hold of an integer
_GONE, _TEXT, _NUMBER = 0, 1, 2
_BLOCK = 1 << 16  # names that are written down at a time
_NOTHING: Mapping[NodeId, int] = {}


def check_id(what: str, value: object) -> None:
    """Raise unless ``value`` may name a node or a class: text or a whole number of 64 bits.

    "1" and 1 are two names. What only looks like a number (1.0, True) is refused: in Python it
    would be the same name as 1.

    >>> check_id("id of a node", 1.0)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: id of a node must be text or an integer, not 1.0
    """
    if type(value) is int:
        if not -LARGEST - 1 <= value <= LARGEST:
            raise DataError(f"{what} must fit into 64 bits, not {value!r}")
    elif type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"{what} must be text that UTF-8 can write, not {value!r}") from None
    else:
        raise DataError(f"{what} must be text or an integer, not {value!r}")


class IdTable:
    """Names in the order in which they came; positions count from 0 and are never used again.

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

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, value: object) -> bool:
        return type(value) in (str, int) and value in self._positions

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._positions)

    def page(self, start: int, limit: int) -> tuple[list[NodeId], int | None]:
        """Return some names from a position on, and the position after them, None at the end.

        Who goes on there later meets each name once, whatever came and went meanwhile.

        >>> table = IdTable()
        >>> table.add(["a", "b", "c"])
        >>> table.remove(["b"])
        >>> table.page(0, 2), table.page(2, 2)
        ((['a'], 2), (['c'], None))
        """
        end = start + limit
        found = [value for value in self._ids[start:end] if value is not None]
        return found, end if end < len(self._ids) else None

    @property
    def next(self) -> int:
        """The position that the next name gets."""
        return len(self._ids)

    def position(self, value: NodeId) -> int:
        """Return where a name stands, or raise if nobody has it."""
        return self._find(value, _NOTHING)

    def positions(
        self, values: Sequence[NodeId], *, new: Mapping[NodeId, int] = _NOTHING
    ) -> Tensor:
        """Return where names stand; new: names that are about to be added.  -> int64 [values]"""
        return torch.tensor([self._find(value, new) for value in values], dtype=torch.int64)

    def where(self, values: Sequence[NodeId]) -> Tensor:
        """Return where names stand, -1 where nobody has one.  -> int64 [values]"""
        return torch.tensor([self._positions.get(value, -1) for value in values], dtype=torch.int64)

    def _find(self, value: NodeId, new: Mapping[NodeId, int]) -> int:
        position = self._positions.get(value)
        if position is None:
            position = new.get(value)
        if position is None:
            raise UnknownNodeError(f"node {value!r} is not in the graph")
        return position

    def at(self, position: int) -> NodeId:
        """Return the name at a position that is taken."""
        value = self._ids[position]
        assert value is not None, f"position {position} is free"
        return value

    def add(self, values: Sequence[NodeId]) -> None:
        """Give new names the next positions."""
        for value in values:
            if value in self._positions:
                raise DuplicateNodeError(f"node {value!r} is in the graph already")
            self._positions[value] = len(self._ids)
            self._ids.append(value)

    def remove(self, values: Sequence[NodeId]) -> None:
        """Forget names; nothing of them is left."""
        for value in values:
            self._ids[self._positions.pop(value)] = None

    def state(self) -> dict[str, Tensor]:
        """Return the names as arrays: the kind of each, its length in bytes, and all bytes."""
        return whole(self.pieces())

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return the same, made of some names at a time."""

        def made(make: Callable[[Sequence[NodeId | None]], Tensor]) -> Iterator[Tensor]:
            starts = range(0, len(self._ids), _BLOCK)
            return (make(self._ids[start : start + _BLOCK]) for start in starts)

        count, size = len(self._ids), sum(int(part.sum()) for part in made(_lengths))
        return {
            "kinds": Pieces((count,), torch.uint8, partial(made, _kinds)),
            "lengths": Pieces((count,), torch.int64, partial(made, _lengths)),
            "bytes": Pieces((size,), torch.uint8, partial(made, _bytes)),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        joined, start = bytes(state["bytes"].numpy()), 0
        self._ids, self._positions = [], {}
        for kind, length in zip(state["kinds"].tolist(), state["lengths"].tolist(), strict=True):
            text = joined[start : start + length].decode()
            start += length
            value = None if kind == _GONE else int(text) if kind == _NUMBER else text
            if value is not None:
                self._positions[value] = len(self._ids)
            self._ids.append(value)


def _kinds(ids: Sequence[NodeId | None]) -> Tensor:
    return torch.tensor([_kind(value) for value in ids], dtype=torch.uint8)


def _lengths(ids: Sequence[NodeId | None]) -> Tensor:
    lengths = [0 if value is None else len(str(value).encode()) for value in ids]
    return torch.tensor(lengths, dtype=torch.int64)


def _bytes(ids: Sequence[NodeId | None]) -> Tensor:
    joined = bytearray("".join([str(value) for value in ids if value is not None]).encode())
    return torch.frombuffer(joined, dtype=torch.uint8) if joined else _no_bytes()


def _kind(value: NodeId | None) -> int:
    if value is None:
        return _GONE
    return _NUMBER if isinstance(value, int) else _TEXT


def _no_bytes() -> Tensor:
    return torch.empty(0, dtype=torch.uint8)
