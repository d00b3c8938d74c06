"""What the service is sent and what it answers, as JSON and in the OpenAPI document."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr
from torch import Tensor

from evergraph.online.delta import Delta
from evergraph.online.identifiers import LARGEST
from evergraph.server.http import JSON, RefusedError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from evergraph.online.delta import NodeId
    from evergraph.online.explanation import Voice
    from evergraph.online.learner import OnlineLearner

Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]
Whole = Annotated[StrictInt, Field(ge=-LARGEST - 1, le=LARGEST)]
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


Name = str | int


class ErrorReply(BaseModel):
    """What was wrong, in one sentence. Nothing has changed."""

    error: str = Field(examples=["node 'paper-9' is not in the graph"])


class AppliedReply(BaseModel):
    """What became of a delta."""

    seq: int = Field(description="How many deltas have been applied, this one included.")
    new_nodes: int
    classes: int = Field(description="How many classes are known now.")
    recomputed: int = Field(description="Embeddings computed anew.")
    predicted: int = Field(description="Nodes predicted before their label was learned.")
    right: int = Field(description="How many of these predictions were right.")


class NewsReply(BaseModel):
    """How much of a delta was new."""

    new_nodes: int
    known_nodes: int
    other_features: int = Field(description="Known nodes with other features, left as they were.")
    new_edges: int
    known_edges: int
    new_labels: int
    changed_labels: int
    forgotten: int


class UpsertedReply(AppliedReply):
    """What became of a delta that may repeat what is known."""

    news: NewsReply


class Prediction(BaseModel):
    """The class of a node."""

    id: Name
    label: Name = Field(description="The likeliest class.")
    probability: float
    probabilities: list[float] | None = Field(None, description="In the order of `classes`.")


class PredictionsReply(BaseModel):
    """Classes of nodes, in the order in which they were asked for."""

    seq: int = Field(description="After how many deltas this was predicted.")
    classes: list[Name] | None = Field(None, description="All classes, if they were asked for.")
    predictions: list[Prediction]


class StatusReply(BaseModel):
    """What the learner knows, and how its folder does."""

    seq: int = Field(description="Deltas applied.")
    nodes: int
    edges: int = Field(description="Entries of the adjacency: an edge both ways counts twice.")
    classes: int
    names: list[Name] = Field(description="Of the classes, in the order in which they came.")
    labelled: int
    features: int
    memory: int = Field(description="Bytes of graph, embeddings and head.")
    predicted: int = Field(description="Labels that were predicted before they were learned.")
    accuracy: float | None = Field(description="The share of these that was right.")
    exact_forgetting: bool
    waiting: int = Field(description="Changes that wait to be learned.")
    snapshot: int = Field(description="Deltas that the newest snapshot holds.")
    stopped: str | None = Field(description="Why no more deltas are taken, if so.")
    snapshot_error: str | None = Field(description="Why the last snapshot failed, if it did.")


class Point(BaseModel):
    """A stretch of deltas that brought labels."""

    seq: int
    nodes: int
    classes: int
    asked: int
    right: int


class HistoryReply(BaseModel):
    """How good predictions were before their labels came: predict, then learn."""

    curve: list[Point]
    newest: list[Name] = Field(description="The newest classes, newest last.")
    confusion: list[list[int]] = Field(
        description="How nodes of each were classified lately: as each of these, then as any other."
    )


class Neighbour(BaseModel):
    """A node of an ego-subnetwork."""

    id: Name
    hops: int = Field(description="How far away it is.")
    label: Name | None = Field(description="Its class, if that is known.")
    weight: float | None = Field(description="Its share in the embedding, if that can be told.")


class VoiceReply(BaseModel):
    """What one node adds to the scores of another."""

    id: Name
    label: Name | None
    weight: float
    says: list[float] = Field(description="For each of `classes`.")


class NodeReply(BaseModel):
    """What is known about a node, and why it is classified as it is.

    scores[c] = sum of says[c] over voices + others[c] + rest[c].
    """

    id: Name
    known: Name | None = Field(description="Its class, if that was told.")
    label: Name = Field(description="The class predicted.")
    probability: float
    classes: list[Name] = Field(description="The likeliest classes.")
    probabilities: list[float]
    scores: list[float]
    neighbours: list[Neighbour] = Field(description="The node itself first.")
    edges: list[tuple[int, int]] = Field(description="Places in `neighbours`.")
    whole: bool = Field(description="Whether all of its surroundings are listed.")
    voices: list[VoiceReply] | None = Field(description="Loudest first; null if not linear.")
    others: list[float] = Field(description="What all other nodes add.")
    rest: list[float] = Field(description="What no node adds.")


class HealthReply(BaseModel):
    """The service lives."""

    status: str


CLASSES = 5  # that are compared


def node_reply(learner: OnlineLearner, node: NodeId, limit: int) -> dict[str, Any]:
    """Return all that is told of a node, as JSON can hold it.

    limit: how many nodes around it are listed, and how many voices.
    """
    around = learner.neighbourhood(node, limit=limit)
    why = learner.explain(node, top=CLASSES, limit=limit)
    weights = {voice.node: voice.weight for voice in why.voices or ()}
    places = zip(around.nodes, around.distances, around.labels, strict=True)
    return {
        "id": node,
        "known": why.label,
        "label": why.classes[0],
        "probability": why.probabilities[0],
        "classes": list(why.classes),
        "probabilities": list(why.probabilities),
        "scores": list(why.scores),
        "neighbours": [
            {"id": near, "hops": hops, "label": label, "weight": weights.get(near)}
            for near, hops, label in places
        ],
        "edges": [list(edge) for edge in around.edges],
        "whole": around.whole,
        "voices": None if why.voices is None else [_voice(voice) for voice in why.voices],
        "others": list(why.others),
        "rest": list(why.rest),
    }


def _voice(voice: Voice) -> dict[str, Any]:
    return {
        "id": voice.node,
        "label": voice.label,
        "weight": voice.weight,
        "says": list(voice.says),
    }


MEANINGS = {
    400: "The request ended early.",
    401: "No token, or a wrong one.",
    403: "The token may not do this.",
    404: "A node that is not known.",
    409: "A node that is known already, a key that has other contents, or no class to predict yet.",
    413: "Too large.",
    415: "Another content type than those listed.",
    422: "Not what it should be.",
    429: "Too many requests: see Retry-After.",
    503: "Too busy, too slow or stopping: see Retry-After.",
    507: "The disk is full.",
}
ERROR = {"$ref": "#/components/schemas/ErrorReply"}
KEY_HEADER = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key twice counts once. The same as the field `key`.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
        }
    ]
}


def accepts(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """Return the description of a body: JSON, or bytes of other media types."""
    content: dict[str, Any] = {JSON: {"schema": schema_of(model)}}
    for kind in others:
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def answers(model: type[BaseModel], *refusals: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer and of what may be refused."""
    said: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "Done."}}
    for status in refusals:
        said[status] = {"model": ErrorReply, "description": MEANINGS[status]}
    return said
