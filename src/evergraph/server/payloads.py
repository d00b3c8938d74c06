"""What the service is sent as JSON: models of bodies, and the deltas they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)
from torch import Tensor

from evergraph.online.checking import LONGEST_ID, LONGEST_KEY, LONGEST_NAME
from evergraph.online.delta import Delta
from evergraph.online.identifiers import LARGEST
from evergraph.server.http import RefusedError, refuse_twice

Text = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_ID)]
Whole = Annotated[StrictInt, Field(ge=-LARGEST - 1, le=LARGEST)]
Id = Text | Whole
Item = TypeVar("Item")
Model = TypeVar("Model", bound=BaseModel)
# Of a million mistakes the first is told: finding them all took 40 s and 7 GB.
Listed: TypeAlias = Annotated[list[Item], Field(fail_fast=True)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Told = Id | Listed[Id] | Number
Name = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_NAME)]
Key = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEY)]


Cell = StrictStr | StrictBool | Whole | Number | Listed[StrictStr | Number] | None


class Payload(BaseModel):
    """Base of every body: a field that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid")


EXAMPLE: dict[str, Any] = {
    "nodes": ["paper-1", "paper-2"],
    "features": [[0.5, 1.0], [0.0, 2.0]],
    "labels": ["biology", None],
    "edges": [["paper-1", "paper-2"]],
}


class UpsertBody(Payload):
    """Nodes, edges, features and labels, new or known, and what is to go: what is new counts."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})
    nodes: Listed[Id] = Field([], description="Ids of nodes.")
    features: Listed[Listed[Number]] = Field([], description="A row for each of these nodes.")
    labels: Listed[Told | None] = Field(
        [],
        description="A class for each of these nodes, or a list of labels, or a number; or null.",
    )
    edges: Listed[tuple[Id, Id]] = Field([], description="Pairs of ids, known or new.")
    weights: Listed[Number] = Field(
        [], description="A weight for each of these edges, or none at all; 0 removes an edge."
    )
    relations: Listed[Name] = Field(
        [], description="What each of these edges stands for, or none at all."
    )
    types: Listed[Name | None] = Field(
        [], description="What kind of thing each of these nodes is, or null; or none at all."
    )
    removed_edges: Listed[tuple[Id, Id]] = Field([], description="Pairs of ids whose edges go.")
    updated: Listed[Id] = Field([], description="Known ids that get other features.")
    updated_features: Listed[Listed[Number]] = Field([], description="A row for each of these.")
    late: Listed[tuple[Id, Told]] = Field([], description="Known ids and the classes they have.")
    forgotten: Listed[Id] = Field([], description="Ids that go, with all they taught.")
    rows: Listed[dict[Text, Cell]] = Field(
        [], description="Objects with id, label and columns, in place of nodes, features, labels."
    )

    def delta(self) -> Delta:
        """Return what is to happen."""
        labels = self.labels or [None] * len(self.nodes)
        return Delta(
            nodes=tuple(self.nodes),
            features=_matrix("features", self.features),
            labels=tuple(labels),
            edges=tuple(self.edges),
            weights=tuple(self.weights),
            relations=tuple(self.relations),
            types=tuple(self.types),
            removed_edges=tuple(self.removed_edges),
            updated=tuple(self.updated),
            updated_features=_matrix("updated_features", self.updated_features),
            late=tuple(self.late),
            forgotten=tuple(self.forgotten),
        )


class DeltaBody(UpsertBody):
    """New nodes and edges, other weights and features, late labels, and what is to go: all of it
    or nothing."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE | {"key": "monday-1"}})
    nodes: Listed[Id] = Field([], description="Ids of new nodes.")
    key: Key | None = Field(None, description="A delta whose key is known is not applied again.")

    def delta(self) -> Delta:
        """Return what is to happen."""
        return replace(super().delta(), key=self.key)


class LabelsBody(Payload):
    """Classes of nodes that are known already."""

    model_config = ConfigDict(json_schema_extra={"example": {"labels": [["paper-2", "physics"]]}})
    labels: Listed[tuple[Id, Told]] = Field(min_length=1, description="Pairs of id and class.")
    key: Key | None = None

    def delta(self) -> Delta:
        """Return what is to happen."""
        return Delta(late=tuple(self.labels), key=self.key)


class ForgetBody(Payload):
    """Nodes that go, with their edges and all they taught."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-1"]}})
    ids: Listed[Id] = Field(min_length=1)
    key: Key | None = None

    def delta(self) -> Delta:
        """Return what is to happen."""
        return Delta(forgotten=tuple(self.ids), key=self.key)


class PredictionsBody(Payload):
    """Nodes to classify."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-2"]}})
    ids: Listed[Id]
    all: bool = Field(False, strict=True, description="Whether every class's probability is told.")


def _matrix(name: str, rows: list[list[float]]) -> Tensor:
    """Return rows of equal width side by side.  -> float32 [rows, width]"""
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise RefusedError(422, f"{name} must be rows of one width, not of {_some(widths)}")
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused so
        matrix = np.array(rows, dtype=np.float64).astype(np.float32)
    return torch.from_numpy(matrix.reshape(len(rows), max(widths, default=0)))


def _some(widths: set[int]) -> str:
    first = sorted(widths)[:3]
    return " and ".join(map(str, first)) + (" and others" if len(widths) > 3 else "")


def parse(model: type[Model], body: bytes) -> Model:
    """Read JSON as ``model``; what does not fit is said in one sentence."""
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(422, sentence_of(error)) from None
    rows: Sequence[Mapping[str, Any]] = getattr(found, "rows", ())
    refuse_twice(body, len(found.model_fields_set) + sum(map(len, rows)))
    return found


def sentence_of(error: ValidationError) -> str:
    """Return the first thing wrong: where, and what was expected."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    loc, said = errors[0]["loc"], errors[0]["msg"]
    # Behind the field's name stand numbers, and for ids which of their two kinds was tried.
    place = "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))
    if any(isinstance(part, str) for part in loc[1:]):
        said = "must be a string of 1 to 1024 characters or a whole number of 64 bits"
    said = said[:1].lower() + said[1:]
    return f"{loc[0] if loc else 'body'}{place}: {said}"[:500]
