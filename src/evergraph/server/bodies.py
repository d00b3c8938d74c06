"""Request bodies as deltas and questions of one learner; see ``http.Bodies`` for how they are read.

pydantic parses JSON, pyarrow parses tables (``arrow``), and columns are encoded by the learner's
scheme. Here only the shape is checked; whether a delta fits is checked by the learner alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from evergraph.core.errors import DataError, say_once
from evergraph.core.packages import installed
from evergraph.graphs.validation import say_repeated
from evergraph.online.checking import LONGEST_ID, LONGEST_KEY, LONGEST_NAME, without_repeats
from evergraph.online.codecs.node_rows import delta_parts, read_rows, table_of_json
from evergraph.online.delta import Delta, is_empty
from evergraph.online.folder.markers import check_chosen
from evergraph.online.identifiers import LARGEST
from evergraph.server.arrow import ArrowReader
from evergraph.server.http import ARROW, QUOTED, RefusedError, check_named
from evergraph.tables.choices import Columns
from evergraph.tables.labels import boolean_name
from evergraph.tables.names import of_nodes, worded
from evergraph.tables.nodes import feature_names
from evergraph.tables.scheme import Scheme
from evergraph.tables.sources import naming

if TYPE_CHECKING:
    from torch import Tensor

    from evergraph.online.folder.learner_folder import LearnerFolder

Item = TypeVar("Item")
Text = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_ID)]
Whole = Annotated[StrictInt, Field(ge=-LARGEST - 1, le=LARGEST)]
Id = Text | Whole
Model = TypeVar("Model", bound=BaseModel)
# Stop at the first error: collecting a million of them took 40 s and 7 GB.
Listed: TypeAlias = Annotated[list[Item], Field(fail_fast=True)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Boolean = Annotated[StrictBool, AfterValidator(boolean_name)]
Target = Id | Listed[Id] | Number | Boolean  # a class, several labels, or a number
Name = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_NAME)]
Key = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEY)]
Cell = StrictStr | StrictBool | Whole | Number | Listed[StrictStr | Number] | None
Row = Annotated[dict[Text, Cell], Field(fail_fast=True)]


class Payload(BaseModel):
    """Base of every body. ``parse`` rejects unknown fields.

    With ``extra="forbid"`` pydantic would build an error record for every unknown field.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema for the OpenAPI document, which allows no unknown fields."""
        return {**handler(schema), "additionalProperties": False}


EXAMPLE: dict[str, Any] = {
    "nodes": ["paper-1", "paper-2"],
    "features": [[0.5, 1.0], [0.0, 2.0]],
    "labels": ["biology", None],
    "edges": [["paper-1", "paper-2"]],
}


MATRICES = ("features", "updated_features")
LISTS = (
    "nodes",
    "labels",
    "edges",
    "weights",
    "relations",
    "types",
    "removed_edges",
    "updated",
    "late",
    "forgotten",
)


class UpsertBody(Payload):
    """Nodes, edges, features, labels and removals, of which only what is new is applied."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})
    nodes: Listed[Id] = Field([], description="Ids of nodes.")
    features: Listed[Listed[Number]] = Field([], description="A row for each of these nodes.")
    labels: Listed[Target | None] = Field(
        [],
        description="A class for each of these nodes, or a list of labels, or a number; or null.",
    )
    edges: Listed[tuple[Id, Id]] = Field([], description="Pairs of ids, known or new.")
    weights: Listed[Number] = Field(
        [], description="A weight for each edge, or an empty list; 0 removes an edge."
    )
    relations: Listed[Name] = Field([], description="A relation for each edge, or an empty list.")
    types: Listed[Name | None] = Field(
        [], description="A node type, or null, for each node; or an empty list."
    )
    removed_edges: Listed[tuple[Id, Id]] = Field([], description="Edges to remove: pairs of ids.")
    updated: Listed[Id] = Field([], description="Known ids whose features change.")
    updated_features: Listed[Listed[Number]] = Field([], description="A row for each of these.")
    late: Listed[tuple[Id, Target]] = Field([], description="Known ids and their classes.")
    forgotten: Listed[Id] = Field([], description="Ids of nodes to forget.")
    rows: Listed[Row] = Field(
        [], description="Objects with id, label and columns, in place of nodes, features, labels."
    )

    def delta(self) -> Delta:
        """Return the body as a delta."""
        parts: dict[str, Any] = {name: tuple(getattr(self, name)) for name in LISTS}
        parts["labels"] = parts["labels"] or (None,) * len(self.nodes)
        parts |= {name: _matrix(name, getattr(self, name)) for name in MATRICES}
        # In columns, which take little memory while they wait for the writer.
        return Delta(**parts, key=getattr(self, "key", None))


class DeltaBody(UpsertBody):
    """New nodes and edges, changed weights and features, late labels, and removals: all of it or
    nothing."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE | {"key": "monday-1"}})
    nodes: Listed[Id] = Field([], description="Ids of new nodes.")
    key: Key | None = Field(None, description="A delta with a known key is not applied again.")


class LabelsBody(Payload):
    """Classes of known nodes."""

    model_config = ConfigDict(json_schema_extra={"example": {"labels": [["paper-2", "physics"]]}})
    labels: Listed[tuple[Id, Target]] = Field(min_length=1, description="Pairs of id and class.")
    key: Key | None = None

    def delta(self) -> Delta:
        """Return the body as a delta."""
        return Delta(late=tuple(self.labels), key=self.key)


class ForgetBody(Payload):
    """Nodes to forget: they, their edges and all that was learned from them are removed."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-1"]}})
    ids: Listed[Id] = Field(min_length=1)
    key: Key | None = None

    def delta(self) -> Delta:
        """Return the body as a delta."""
        return Delta(forgotten=tuple(self.ids), key=self.key)


class RefitBody(Payload):
    """Nothing but a key: everything is learned again."""

    key: Key | None = None

    def delta(self) -> Delta:
        """Return the body as a delta."""
        return Delta(refit=True, key=self.key)


class PredictionsBody(UpsertBody):
    """Nodes to classify, as they are or as they would be after a change, which is not made."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-2"]}})
    ids: Listed[Id] = Field([], description="Ids of nodes; by default those that would be new.")
    all: bool = Field(
        False, strict=True, description="Whether to return the probability of every class."
    )
    known: bool = Field(
        False, strict=True, description="Whether to return what is known of each node."
    )

    @property
    def has_change(self) -> bool:
        """Whether it asks about a change."""
        return bool(self.model_fields_set - {"ids", "all", "known"})


def _matrix(name: str, rows: list[list[float]]) -> Tensor:
    """Return lists of equal length as a matrix.  -> float32 [rows, width]"""
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        first_widths = " and ".join(map(str, sorted(widths)[:3]))
        others = " and others" if len(widths) > 3 else ""
        raise RefusedError(422, f"{name} must be rows of one width, not of {first_widths}{others}")
    with np.errstate(over="ignore"):  # too large for float32 becomes inf, which the learner rejects
        matrix = np.array(rows, dtype=np.float64).astype(np.float32)
    return torch.from_numpy(matrix.reshape(len(rows), max(widths, default=0)))


def parse(model: type[Model], body: bytes) -> Model:
    """Parse JSON as ``model``, or raise the first mistake as one sentence."""
    try:
        parsed = model.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(422, _sentence_of(error)) from None
    for name in parsed.model_extra or ():
        raise RefusedError(422, f"{name[:QUOTED]}: extra inputs are not permitted")
    rows = parsed.rows if isinstance(parsed, UpsertBody) else ()
    _check_no_repeated_keys(body, len(parsed.model_fields_set) + sum(map(len, rows)))
    return parsed


def _sentence_of(error: ValidationError) -> str:
    """Return the first mistake: where it is, and what was expected."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    location, text = errors[0]["loc"], errors[0]["msg"]
    # After the field's name come indices, and for ids the name of the type that was tried.
    indices = "".join(f"[{part}]" for part in location[1:] if isinstance(part, int))
    if any(isinstance(part, str) for part in location[1:]):
        text = "must be a string of 1 to 1024 characters or a whole number of 64 bits"
    text = text[:1].lower() + text[1:]
    return f"{location[0] if location else 'body'}{indices}: {text}"[:500]


def _check_no_repeated_keys(body: bytes, keys: int) -> None:
    """Raise if an object of a parsed body has a key twice, of which parsers silently keep the last.

    Two cheap tests clear almost every body: as many colons as distinct keys, or as many colons
    after a quotation mark. Any other body is parsed a second time.  keys: distinct ones of all
    """
    if body.count(b":") == keys or sum(1 for _ in re.finditer(rb'"[ \t\r\n]*:', body)) == keys:
        return

    def reject_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:
                raise RefusedError(
                    400, f"key {name[:QUOTED]!r} must come once in an object, not twice"
                )
            values[name] = value
        return values

    json.loads(body, object_pairs_hook=reject_repeated)


DELTAS: Mapping[str, type[UpsertBody | LabelsBody | ForgetBody | RefitBody]] = {
    "delta": DeltaBody,
    "upsert": UpsertBody,
    "labels": LabelsBody,
    "forget": ForgetBody,
    "refit": RefitBody,
    "question": PredictionsBody,
}


def read_question(body: bytes, *, most: int) -> PredictionsBody:
    """Parse a request for predictions; reject one that is malformed or names too many nodes."""
    question = parse(PredictionsBody, body)
    check_named("request", len(question.ids), most)
    if not question.has_change and "ids" not in question.model_fields_set:
        raise RefusedError(422, "ids: a field is required: ids of nodes, or rows that are new")
    if question.has_change and question.known:
        raise RefusedError(422, "known must be false beside a change: ask for known labels alone")
    return question


RAW = (
    "the learner scales and encodes named columns, and these numbers are used as they are: send "
    "rows to have them encoded"
)


@dataclass(frozen=True)
class ColumnsOfBody:
    """What a request says about the columns of its body."""

    names: Mapping[str, str] = field(default_factory=dict)  # the user's names of columns, by ours
    columns: Columns | None = None  # how they are read, if the learner has no columns yet


class DeltaReader:
    """Reads the deltas that are sent to a learner, each of which may name ``most`` nodes."""

    def __init__(self, folder: LearnerFolder, *, most: int) -> None:
        self._folder = folder
        self._most = most
        self._told_of_repeats: set[str] = set()  # what became of them, said once each

    def read(
        self,
        body: bytes,
        *,
        model: str,
        kind: str,
        repeated: str = "last",
        own_columns: ColumnsOfBody | None = None,
    ) -> Delta:
        """Return the delta in a body.

        model: a key of ``DELTAS``; kind: media type; repeated: for edges that it lists several
        times; own_columns: about its columns.
        """
        own_columns = own_columns or ColumnsOfBody()
        rows: Sequence[Mapping[str, Any]] = ()
        if kind == ARROW:
            reader = ArrowReader(
                columns=self._reading(own_columns.columns),
                kind=self._folder.learner.head.target.name,
                names=own_columns.names,
                nodes=self._most,
            )
            delta = reader.read(body)
        else:
            parsed = parse(DELTAS[model], body)
            delta, rows = parsed.delta(), getattr(parsed, "rows", ())
        if is_empty(delta) and not rows:
            raise RefusedError(
                422, "a delta must add, change or remove something, and this is empty"
            )
        counts = map(len, (delta.nodes, delta.late, delta.forgotten, delta.updated, rows))
        check_named("delta", max(counts), self._most)
        if rows:
            delta = self._with_rows(delta, rows, own_columns)
        numbers = len(delta.features) or len(delta.updated_features)
        if numbers and not rows and kind != ARROW and self._folder.columns is not None:
            say_once("features", RAW)
        edges, both_ways = len(delta.edges), self._folder.learner.undirected
        delta, repeats = without_repeats(delta, repeated, both_ways=both_ways)
        if repeats and repeated not in self._told_of_repeats:
            self._told_of_repeats.add(repeated)
            say_repeated("a delta", repeats, edges, repeated)
        return delta

    def _with_rows(
        self, delta: Delta, rows: Sequence[Mapping[str, Any]], own_columns: ColumnsOfBody
    ) -> Delta:
        if len(delta.nodes) or len(delta.features):
            raise RefusedError(422, "a body must have nodes with features or rows, not both")
        if not installed("pyarrow"):
            raise RefusedError(422, "rows cannot be read: pyarrow is not installed in this service")
        columns, kind = self._reading(own_columns.columns), self._folder.learner.head.kind
        our_names = of_nodes(own_columns.names)
        renamed_rows = [
            {our_names.get(name.strip(), name.strip()): value for name, value in row.items()}
            for row in rows
        ]
        if columns is None and any(feature_names(row) for row in renamed_rows):
            raise DataError("rows: the learner began with plain numbers: send nodes and features")
        with worded(our_names), naming("rows"):
            table = read_rows(
                table_of_json(renamed_rows, columns, kind), columns, kind, where="rows"
            )
        return replace(delta, **delta_parts(table))

    def _reading(self, choices: Columns | None) -> Columns | Scheme | None:
        """Return how columns are read: as the first were, or by the choices of a first body."""
        if not self._folder.learner.status().features:
            return choices or Columns()
        if choices is not None:
            check_chosen("columns", self._folder.columns, choices)
        return self._folder.columns
