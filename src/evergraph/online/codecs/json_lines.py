"""Deltas from lines of JSON, one object per line.

{"node": "a", "features": [0.5, 1.0], "label": "x"}     a new node, with its label if known
{"node": "a", "size": 0.5, "town": "Ulm"}               the same with columns instead of a list
{"node": "a", "size": 0.5, "type": "author"}            with a node type
{"edge": ["a", "b"], "weight": 2.0}                     an edge, or a new weight of one
{"edge": ["a", "b"], "relation": "cites"}               with a relation
{"remove_edge": ["a", "b"]}
{"update": "a", "features": [0.0, 1.0]}                 new features of a known node
{"label": ["a", "y"]}                                   a late label
{"forget": "a"}

Columns may be of any kind, and are read like those of the first table or the first lines; a column
missing from a line is a gap. A learner that began with lists of features takes numbers only. A
label is missing where it would be in a table (null, "", "NA", -1, ...); it is a list if the learner
has several labels per node, and a number if it predicts numbers.
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
from evergraph.online.codecs.tables import features_with_words, word_columns
from evergraph.online.delta import Delta, NodeId, NodeTarget
from evergraph.online.identifiers import check_id
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.frames import table_of_rows
from evergraph.tables.labels import one_label
from evergraph.tables.scheme import Scheme

# The first of these keys in an object is its operation: a node may have a label as well.
OPERATIONS = ("node", "edge", "remove_edge", "update", "forget", "label")
PAIRS = ("edge", "remove_edge", "label")
WITH_FEATURES = ("node", "update")


@dataclass(frozen=True)
class Line:
    """A parsed line."""

    number: int  # of the line, starting at 1
    operation: str  # one of ``OPERATIONS``
    ids: tuple[NodeId, ...]  # of the nodes that it names, one or two
    features: tuple[float, ...] = ()  # of a new or updated node
    label: NodeTarget | None = None
    weight: float | None = None  # of an edge
    columns: Mapping[str, Any] | None = None  # instead of features, if a scheme reads them
    relation: str | None = None  # of an edge
    type: str | None = None  # of a node
    typed: bool = False  # whether the line gives a type, possibly null


class LineReader:
    """Parser of lines; if features are columns, all lines must have those of the first.

    columns: a scheme, choices for one that is fitted later (``use_scheme``), or None for plain
    numbers; classes: whether labels are classes, some spellings of which mean a missing label;
    names: the user's names of ``label`` and ``weight``, by ours.

    >>> reader = LineReader()
    >>> reader.read(b'{"node": "a", "size": 2, "label": "x"}', 1).features
    (2.0,)
    >>> reader.read(b'{"node": "b", "age": 2}', 2)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: line 2: has features age: expected size, as before
    """

    def __init__(
        self,
        columns: Columns | Scheme | None = None,
        *,
        classes: bool = True,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._ours = {theirs: ours for ours, theirs in (names or {}).items()}
        self._first: tuple[str, ...] = ()  # columns of the first line
        self._known: list[str] | None = None  # those of the scheme
        self._open = isinstance(columns, Columns)
        self._classes = classes
        if isinstance(columns, Scheme):
            self.use_scheme(columns)

    def use_scheme(self, scheme: Scheme) -> None:
        """Read later lines by a scheme."""
        self._known, self._open = [each.name for each in scheme.columns], False

    def read(self, text: bytes, number: int) -> Line:
        """Parse a line; errors name its number."""
        try:
            try:
                content = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"is not JSON ({error})") from None
            if not isinstance(content, dict):
                raise DataError(f"must be one JSON object, not {type(content).__name__}")
            named = ((name.strip(), value) for name, value in content.items())
            return self._read({self._ours.get(name, name): v for name, v in named}, number)
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None

    def _read(self, rest: dict[str, Any], number: int) -> Line:
        operation = next((name for name in OPERATIONS if name in rest), None)
        if operation is None:
            raise DataError(f"has no operation: expected one of {', '.join(OPERATIONS)}")
        named = rest.pop(operation)
        if operation in PAIRS and (not isinstance(named, list) or len(named) != 2):
            raise DataError(f"{operation} must be a list of two, not {named!r}")
        ids = named if operation in ("edge", "remove_edge") else [named]
        parts: dict[str, Any] = {}
        if operation == "label":
            ids, parts["label"] = named[:1], self._label(named[1])
            if parts["label"] is None:  # other values are checked by the learner
                check_id("label", None)
        elif operation == "edge":
            parts = _weight_and_relation(rest)
        elif operation == "node":
            parts = self._label_and_type(rest)
        for value in ids:
            check_id("id of a node", value)
        if operation in WITH_FEATURES:
            parts |= self._values(rest)
        elif rest:
            raise DataError(f"{operation} takes no {next(iter(rest))!r}")
        return Line(number, operation, tuple(ids), **parts)

    def _label(self, value: Any) -> Any:
        return one_label(value) if self._classes and not isinstance(value, list) else value

    def _label_and_type(self, rest: dict[str, Any]) -> dict[str, Any]:
        """Take the label of a node, and its type: a text or null; a number is a feature."""
        parts = {"label": self._label(rest.pop("label", None))}
        typed = rest.get("type", 0) is None or isinstance(rest.get("type"), str)
        if typed and "type" not in (self._known or self._first):
            parts |= {"type": rest.pop("type"), "typed": True}
        return parts

    def _values(self, rest: dict[str, Any]) -> dict[str, Any]:
        """Return the features of a line, or the columns for a scheme to read."""
        if "features" in rest:
            others = [name for name in rest if name != "features"]
            if others or not isinstance(rest["features"], list):
                what = f"{others[0]!r} beside them" if others else repr(rest["features"])
                raise DataError(f"features must be a list of numbers alone, not {what}")
            return {"features": tuple(_number("features", value) for value in rest["features"])}
        self._check_columns(rest)
        if self._known is not None or self._open:
            return {"columns": rest}
        return {"features": tuple(_number(name, rest[name]) for name in self._first)}

    def _check_columns(self, rest: Mapping[str, Any]) -> None:
        """Raise unless columns are among those of the scheme, or are those of the first line."""
        if self._known is None:
            self._first = self._first or tuple(rest)
            if set(self._first) != set(rest):
                wanted = ", ".join(self._first or ("a list 'features'",))
                found = ", ".join(rest) or "none"
                raise DataError(f"has features {found}: expected {wanted}, as before")
            return
        wanted = ", ".join(self._known)
        for name in rest:
            if name not in self._known:
                raise DataError(
                    f"has a column {name!r} that the first table did not have: expected {wanted}"
                )
        if not rest:
            raise DataError(f"has no features: expected {wanted}")


def _weight_and_relation(rest: dict[str, Any]) -> dict[str, Any]:
    weight, relation = rest.pop("weight", None), rest.pop("relation", None)
    if relation is not None and not isinstance(relation, str):
        raise DataError(f"relation must be a text, not {relation!r}")
    number = None if weight is None else _number("weight", weight)
    return {"weight": number, "relation": relation}


def _number(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise DataError(f"{name} must be finite numbers, not {value!r}")
    return float(value)


@dataclass
class LineBatch:
    """Lines that give the same outcome as one delta as they would one by one.

    A line that undoes or repeats a part of the delta waits for the next one.
    """

    lines: list[Line] = field(default_factory=list)
    _new: set[NodeId] = field(default_factory=set)
    _named: set[NodeId] = field(default_factory=set)
    _changed: set[tuple[str, NodeId]] = field(default_factory=set)  # by update, label or forget
    _removed: set[frozenset[NodeId]] = field(default_factory=set)
    _weighted: bool | None = None
    _related: bool | None = None
    _typed: bool | None = None

    def fits(self, line: Line) -> bool:
        """Whether a line can join the others."""
        if any(("forget", node) in self._changed for node in line.ids):
            return False
        if line.operation == "node":  # an edge to a later node must fail, so the node must wait
            return line.ids[0] not in self._named and self._typed in (None, line.typed)
        if line.operation == "edge":
            weighted, related = line.weight is not None, line.relation is not None
            if related and self._typed is False:  # first nodes without types rule out relations
                return False
            alike = self._weighted in (None, weighted) and self._related in (None, related)
            return alike and frozenset(line.ids) not in self._removed
        if line.operation in ("update", "label", "forget"):
            node = line.ids[0]
            return node not in self._new and (line.operation, node) not in self._changed
        return True

    def add(self, line: Line) -> None:
        """Append a line that fits."""
        self.lines.append(line)
        self._named.update(line.ids)
        if line.operation == "node":
            self._new.add(line.ids[0])
            self._typed = line.typed
        elif line.operation == "edge":
            self._weighted, self._related = line.weight is not None, line.relation is not None
        elif line.operation == "remove_edge":
            self._removed.add(frozenset(line.ids))
        else:
            self._changed.add((line.operation, line.ids[0]))


def delta_of_lines(
    lines: Sequence[Line], *, key: str | None = None, scheme: Scheme | None = None
) -> Delta:
    """Return the lines of a batch as one delta.  scheme: how columns are read"""
    by: dict[str, list[Line]] = {name: [] for name in OPERATIONS}
    for line in lines:
        by[line.operation].append(line)
    return Delta(
        nodes=[line.ids[0] for line in by["node"]],
        features=_matrix(by["node"], scheme),
        labels=[line.label for line in by["node"]],
        edges=[(line.ids[0], line.ids[1]) for line in by["edge"]],
        weights=[line.weight for line in by["edge"] if line.weight is not None],
        relations=[line.relation for line in by["edge"] if line.relation is not None],
        types=[line.type for line in by["node"] if line.typed],
        removed_edges=[(line.ids[0], line.ids[1]) for line in by["remove_edge"]],
        updated=[line.ids[0] for line in by["update"]],
        updated_features=_matrix(by["update"], scheme),
        words=word_columns(scheme),
        late=[(line.ids[0], line.label) for line in by["label"] if line.label is not None],
        forgotten=[line.ids[0] for line in by["forget"]],
        key=key,
    )


def _matrix(lines: Sequence[Line], scheme: Scheme | None) -> Tensor:
    rows = [line.features for line in lines]
    if scheme is not None and any(line.columns is not None for line in lines):
        table = table_of_lines(lines, [each.name for each in scheme.columns])
        # Errors give the number of a single line: several lines are split when one is rejected.
        read = scheme.read(table, before=lines[0].number - 1)
        read.say_new("lines")
        encoded = iter(features_with_words(read).tolist())
        rows = [line.features if line.columns is None else next(encoded) for line in lines]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise DataError(f"every line must have as many features, not {sorted(widths)}")
    return torch.tensor(rows, dtype=torch.float64).float() if rows else torch.zeros(0, 0)


def table_of_lines(lines: Sequence[Line], names: Sequence[str] | None = None) -> pa.Table:
    """Return the columns of lines as a table, with gaps; names: of columns, by default all."""
    return table_of_rows([line.columns for line in lines if line.columns is not None], names or ())
