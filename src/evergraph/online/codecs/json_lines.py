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

What a line says of a node is read like a row of a table: columns of any kind as those of the first
table or the first lines were, with a gap where a line lacks one. A label is a list if the learner
has several labels per node, and a number if it predicts numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evergraph.core.errors import DataError
from evergraph.online.codecs.node_rows import (
    delta_parts,
    features_with_words,
    late_labels,
    read_listed,
    table_of_json,
    word_columns,
)
from evergraph.online.delta import Delta, NodeId
from evergraph.online.identifiers import check_id
from evergraph.tables.choices import Columns
from evergraph.tables.nodes import NodeTable
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
    row: Mapping[str, Any] = field(default_factory=dict)  # what it says of a node, by column
    weight: float | None = None  # of an edge
    relation: str | None = None  # of an edge

    @property
    def typed(self) -> bool:
        """Whether it gives the type of a node, possibly null; a number is a feature."""
        return "type" in self.row and isinstance(self.row["type"], str | None)


def parsed_line(text: bytes, number: int, names: Mapping[str, str] | None = None) -> Line:
    """Parse a line; errors name its number.  names: the user's of label and weight, by ours

    >>> parsed_line(b'{"node": "a", "size": 2, "label": "x"}', 1).row
    {'size': 2, 'label': 'x'}
    >>> parsed_line(b'{"nod": "b"}', 2)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: line 2: has no operation: expected one of node, edge, \
remove_edge, update, forget, label
    """
    ours = {theirs: our for our, theirs in (names or {}).items()}
    try:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"is not JSON ({error})") from None
        if not isinstance(content, dict):
            raise DataError(f"must be one JSON object, not {type(content).__name__}")
        named = ((name.strip(), value) for name, value in content.items())
        return _line({ours.get(name, name): value for name, value in named}, number)
    except DataError as error:
        raise DataError(f"line {number}: {error}") from None


def _line(rest: dict[str, Any], number: int) -> Line:
    operation = next((name for name in OPERATIONS if name in rest), None)
    if operation is None:
        raise DataError(f"has no operation: expected one of {', '.join(OPERATIONS)}")
    named = rest.pop(operation)
    if operation in PAIRS and (not isinstance(named, list) or len(named) != 2):
        raise DataError(f"{operation} must be a list of two, not {named!r}")
    ids = named if operation in ("edge", "remove_edge") else [named]
    parts: dict[str, Any] = {}
    if operation == "label":
        ids, parts["row"] = named[:1], {"label": named[1]}
    elif operation == "edge":
        parts = _weight_and_relation(rest)
    elif operation in WITH_FEATURES:
        if operation == "update" and "label" in rest:
            raise DataError("update takes no 'label': give it as {\"label\": [id, label]}")
        parts["row"] = _checked_row(rest)
    for value in ids:
        check_id("id of a node", value)
    if strange := [name for name in rest if operation not in WITH_FEATURES or name == "id"]:
        raise DataError(f"{operation} takes no {strange[0]!r}")
    return Line(number, operation, tuple(ids), **parts)


def _checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of a node; raise unless features are a list of numbers, if one."""
    if "features" not in row:
        return row
    features = row["features"]
    others = [name for name in row if name not in ("features", "label", "type")]
    if not isinstance(row.get("type"), str | None):
        others.append("type")
    if others or not isinstance(features, list):
        what = f"{others[0]!r} beside them" if others else repr(features)
        raise DataError(f"features must be a list of numbers alone, not {what}")
    return row | {"features": [_number("features", value) for value in features]}


def _weight_and_relation(rest: dict[str, Any]) -> dict[str, Any]:
    weight, relation = rest.pop("weight", None), rest.pop("relation", None)
    if relation is not None and not isinstance(relation, str):
        raise DataError(f"relation must be a text, not {relation!r}")
    number = None if weight is None else _number("weight", weight)
    return {"weight": number, "relation": relation}


def _number(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise DataError(f"{name} must be finite numbers, not {repr(value)[:80]}")
    return number


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
    _listed: bool | None = None  # whether features are lists, not columns

    def fits(self, line: Line) -> bool:
        """Whether a line can join the others."""
        if any(("forget", node) in self._changed for node in line.ids):
            return False
        if line.operation in WITH_FEATURES and self._listed not in (None, "features" in line.row):
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
        if line.operation in WITH_FEATURES:
            self._listed = "features" in line.row
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
    lines: Sequence[Line],
    *,
    key: str | None = None,
    columns: Columns | Scheme | None = None,
    kind: str = "class",
    first: Sequence[str] = (),
) -> Delta:
    """Return the lines of a batch as one delta.

    columns: a scheme, choices for one that these lines decide, or None for plain numbers; kind: of
    the learner's targets; first: columns that come first.
    """
    by: dict[str, list[Line]] = {name: [] for name in OPERATIONS}
    for line in lines:
        by[line.operation].append(line)

    def read(
        operation: str, columns: Columns | Scheme | None, first: Sequence[str] = ()
    ) -> NodeTable:
        rows = [{"id": line.ids[0], **line.row} for line in by[operation]]
        if isinstance(columns, Scheme):
            no_features = {"label", "type"} - columns.kinds.keys()
            if any(line.row.keys() <= no_features for line in by[operation]):
                raise DataError(f"has no features: expected {', '.join(columns.kinds)}")
        table = table_of_json(rows, columns, kind, first=first)
        # Errors give the number of a single line: several lines are split when one is rejected.
        before = lines[0].number - 1
        return read_listed(table, columns, kind, where="lines", before=before)

    scheme = columns if isinstance(columns, Scheme) else None
    parts: dict[str, Any] = {}
    if by["node"]:
        new = read("node", columns, first)
        scheme = scheme or new.features.scheme
        parts |= delta_parts(new)
    if by["update"]:
        updated = read("update", scheme, first)
        if updated.types is not None and updated.types.null_count < len(updated.types):
            raise DataError("update takes no 'type': a node keeps the type that it came with")
        parts["updated"] = updated.ids.to_pylist()
        parts["updated_features"] = features_with_words(updated.features)
    if by["label"]:
        parts["late"] = late_labels(read("label", None))
    return Delta(
        **parts | {"words": word_columns(scheme), "scheme": scheme},
        edges=[(line.ids[0], line.ids[1]) for line in by["edge"]],
        weights=[line.weight for line in by["edge"] if line.weight is not None],
        relations=[line.relation for line in by["edge"] if line.relation is not None],
        removed_edges=[(line.ids[0], line.ids[1]) for line in by["remove_edge"]],
        forgotten=[line.ids[0] for line in by["forget"]],
        key=key,
    )
