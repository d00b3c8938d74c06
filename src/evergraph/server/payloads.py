"""What is sent to the service as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr
from torch import Tensor

from evergraph.online.delta import Delta
from evergraph.server.refusal import RefusedError

LEAST, LARGEST = -(2**63), 2**63 - 1  # what a journal keeps of an integer

Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]
Whole = Annotated[StrictInt, Field(ge=LEAST, le=LARGEST)]
Id = Text | Whole
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Key = Annotated[StrictStr, Field(min_length=1, max_length=200)]


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
    """Nodes, edges and labels, new or known, and nodes to forget: what is new of it counts."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})
    nodes: list[Id] = Field([], description="Ids of nodes.")
    features: list[list[Number]] = Field([], description="A row for each of these nodes.")
    labels: list[Id | None] = Field([], description="A class for each of these nodes, or null.")
    edges: list[tuple[Id, Id]] = Field([], description="Pairs of ids, known or new.")
    late: list[tuple[Id, Id]] = Field([], description="Known ids and the classes they have.")
    forgotten: list[Id] = Field([], description="Ids that go, with all they taught.")

    def delta(self) -> Delta:
        """Return what is to happen."""
        labels = self.labels or [None] * len(self.nodes)
        return Delta(
            nodes=tuple(self.nodes),
            features=_matrix(self.features),
            labels=tuple(labels),
            edges=tuple(self.edges),
            late=tuple(self.late),
            forgotten=tuple(self.forgotten),
        )


class DeltaBody(UpsertBody):
    """New nodes and edges, labels that came late, and nodes to forget: all of it or nothing."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE | {"key": "monday-1"}})
    nodes: list[Id] = Field([], description="Ids of new nodes.")
    key: Key | None = Field(None, description="A delta whose key is known is not applied again.")

    def delta(self) -> Delta:
        """Return what is to happen."""
        return replace(super().delta(), key=self.key)


class LabelsBody(Payload):
    """Classes of nodes that are known already."""

    model_config = ConfigDict(json_schema_extra={"example": {"labels": [["paper-2", "physics"]]}})
    labels: list[tuple[Id, Id]] = Field(min_length=1, description="Pairs of id and class.")
    key: Key | None = None

    def delta(self) -> Delta:
        """Return what is to happen."""
        return Delta(late=tuple(self.labels), key=self.key)


class ForgetBody(Payload):
    """Nodes that go, with their edges and all they taught."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-1"]}})
    ids: list[Id] = Field(min_length=1)
    key: Key | None = None

    def delta(self) -> Delta:
        """Return what is to happen."""
        return Delta(forgotten=tuple(self.ids), key=self.key)


class PredictionsBody(Payload):
    """Nodes to classify."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-2"]}})
    ids: list[Id]
    all: bool = Field(False, strict=True, description="Whether every class's probability is told.")


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a body, in one piece."""
    return model.model_json_schema()


def _matrix(rows: list[list[float]]) -> Tensor:
    """Return rows of equal width side by side.  -> float32 [rows, width]"""
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise RefusedError(422, f"features must be rows of one width, not of {_some(widths)}")
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused so
        matrix = np.array(rows, dtype=np.float64).astype(np.float32)
    return torch.from_numpy(matrix.reshape(len(rows), max(widths, default=0)))


def _some(widths: set[int]) -> str:
    first = sorted(widths)[:3]
    return " and ".join(map(str, first)) + (" and others" if len(widths) > 3 else "")
