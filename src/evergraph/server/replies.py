"""What the service answers, as JSON."""

from __future__ import annotations

from pydantic import BaseModel, Field

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
