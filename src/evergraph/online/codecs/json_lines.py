"""Deltas from lines of JSON, one object a line, in the order in which they come.

{"node": "a", "features": [0.5, 1.0], "label": "x"}     a new node; its label if known
{"node": "a", "size": 0.5, "age": 1.0}                  the same with columns in place of a list
{"edge": ["a", "b"], "weight": 2.0}                     an edge, or another weight of one
{"remove_edge": ["a", "b"]}
{"update": "a", "features": [0.0, 1.0]}                 other features of a known node
{"label": ["a", "y"]}                                   a label that comes late
{"forget": "a"}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta, Label, NodeId
from evergraph.online.identifiers import check_id

# The first that an object has says what it is about: a node may have a label as well.
OPERATIONS = ("node", "edge", "remove_edge", "update", "forget", "label")
PAIRS = ("edge", "remove_edge", "label")
WITH_FEATURES = ("node", "update")


@dataclass(frozen=True)
class Line:
    """What one line says.

    Attributes:
        number: of the line, from 1 on.
        operation: one of ``OPERATIONS``.
        ids: of the nodes that it names, one or two.
        features: of a node that comes or is updated.
        label: of a node, if it has one.
        weight: of an edge, None where none is given.
    """

    number: int
    operation: str
    ids: tuple[NodeId, ...]
    features: tuple[float, ...] = ()
    label: Label | None = None
    weight: float | None = None


class LineReader:
    """Reads lines; where features are columns, their order is that of the first such line.

    >>> reader = LineReader()
    >>> reader.read(b'{"node": "a", "size": 2, "label": "x"}', 1).features
    (2.0,)
    >>> reader.read(b'{"node": "b", "age": 2}', 2)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: line 2: has features age: expected size, as before
    """

    def __init__(self) -> None:
        self._columns: tuple[str, ...] | None = None

    def read(self, text: bytes, number: int) -> Line:
        """Return what a line says; raise, naming its number, unless it says something."""
        try:
            return self._read(_parsed(text), number)
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None

    def _read(self, said: dict[str, Any], number: int) -> Line:
        operation = next((name for name in OPERATIONS if name in said), None)
        if operation is None:
            raise DataError(f"says nothing that is known: expected {', '.join(OPERATIONS)}")
        rest = dict(said)
        named = rest.pop(operation)
        label = rest.pop("label", None) if operation == "node" else None
        weight = rest.pop("weight", None) if operation == "edge" else None
        if operation in PAIRS:
            if not isinstance(named, list) or len(named) != 2:
                raise DataError(f"{operation} must be a list of two, not {named!r}")
            ids = named
        else:
            ids = [named]
        if operation == "label":
            ids, label = named[:1], named[1]
        for value in ids:
            check_id("id of a node", value)
        if label is not None or operation == "label":
            check_id("label", label)
        features = self._features(rest) if operation in WITH_FEATURES else ()
        if operation not in WITH_FEATURES and rest:
            raise DataError(f"{operation} takes no {next(iter(rest))!r}")
        weighed = None if weight is None else _number("weight", weight)
        return Line(number, operation, tuple(ids), features, label, weighed)

    def _features(self, rest: Mapping[str, Any]) -> tuple[float, ...]:
        """Return features: a list under that name, or columns under theirs."""
        if "features" in rest:
            others = [name for name in rest if name != "features"]
            if others or not isinstance(rest["features"], list):
                what = f"{others[0]!r} beside them" if others else repr(rest["features"])
                raise DataError(f"features must be a list of numbers alone, not {what}")
            return tuple(_number("features", value) for value in rest["features"])
        if self._columns is None and rest:
            self._columns = tuple(rest)
        if set(self._columns or ()) != set(rest):
            wanted = ", ".join(self._columns or ("a list 'features'",))
            raise DataError(
                f"has features {', '.join(rest) or 'none'}: expected {wanted}, as before"
            )
        return tuple(_number(name, rest[name]) for name in self._columns or ())


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError(f"is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise DataError(f"must be one JSON object, not {type(found).__name__}")
    return found


def _number(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise DataError(f"{name} must be finite numbers, not {value!r}")
    return float(value)


@dataclass
class Batch:
    """Lines that make one delta with the same outcome as one delta a line.

    A delta has an order of its own, so a line that undoes or repeats part of it waits for the next.
    """

    lines: list[Line] = field(default_factory=list)
    _new: set[NodeId] = field(default_factory=set)
    _named: set[NodeId] = field(default_factory=set)
    _told: set[tuple[str, NodeId]] = field(default_factory=set)
    _removed: set[frozenset[NodeId]] = field(default_factory=set)
    _weighted: bool | None = None

    def fits(self, line: Line) -> bool:
        """Whether a line can join the others.

        >>> reader, batch = LineReader(), Batch()
        >>> batch.add(reader.read(b'{"remove_edge": ["a", "b"]}', 1))
        >>> batch.fits(reader.read(b'{"edge": ["b", "a"]}', 2))
        False
        """
        if any(("forget", node) in self._told for node in line.ids):
            return False
        if line.operation == "node":  # an edge to a node that is yet to come is a mistake
            return line.ids[0] not in self._named
        if line.operation == "edge":
            weighted = line.weight is not None
            kept = frozenset(line.ids) not in self._removed
            return kept and self._weighted in (None, weighted)
        if line.operation in ("update", "label", "forget"):
            node = line.ids[0]
            return node not in self._new and (line.operation, node) not in self._told
        return True

    def add(self, line: Line) -> None:
        """Put a line that fits behind the others."""
        self.lines.append(line)
        self._named.update(line.ids)
        if line.operation == "node":
            self._new.add(line.ids[0])
        elif line.operation == "edge":
            self._weighted = line.weight is not None
        elif line.operation == "remove_edge":
            self._removed.add(frozenset(line.ids))
        else:
            self._told.add((line.operation, line.ids[0]))


def delta_of_lines(lines: Sequence[Line], *, key: str | None = None) -> Delta:
    """Return the lines of a batch as one delta.

    >>> reader = LineReader()
    >>> delta_of_lines([reader.read(b'{"edge": ["a", "b"], "weight": 2}', 1)])
    Delta(1 edges)
    """
    by: dict[str, list[Line]] = {name: [] for name in OPERATIONS}
    for line in lines:
        by[line.operation].append(line)
    weights = [line.weight for line in by["edge"] if line.weight is not None]
    return Delta(
        nodes=[line.ids[0] for line in by["node"]],
        features=_matrix(by["node"]),
        labels=[line.label for line in by["node"]],
        edges=[_pair(line) for line in by["edge"]],
        weights=weights,
        removed_edges=[_pair(line) for line in by["remove_edge"]],
        updated=[line.ids[0] for line in by["update"]],
        updated_features=_matrix(by["update"]),
        late=[(line.ids[0], line.label) for line in by["label"] if line.label is not None],
        forgotten=[line.ids[0] for line in by["forget"]],
        key=key,
    )


def _pair(line: Line) -> tuple[NodeId, NodeId]:
    return line.ids[0], line.ids[1]


def _matrix(lines: Sequence[Line]) -> Tensor:
    """Return features, a row a line.  -> float32 [lines, dims]"""
    widths = {len(line.features) for line in lines}
    if len(widths) > 1:
        raise DataError(f"features must be as many on every line, not {sorted(widths)}")
    if not lines:
        return torch.zeros(0, 0)
    return torch.tensor([line.features for line in lines], dtype=torch.float64).float()
