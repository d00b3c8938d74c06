"""What readers of a learner are given: records, and the learner between two deltas (``Reading``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor

from evergraph.core.component import ShownRecord
from evergraph.online.arrays import GrowingArray
from evergraph.online.delta import Label, NodeId
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge
from evergraph.online.monitor import Point

if TYPE_CHECKING:
    from evergraph.online.view.learner_view import PublishedState


@dataclass(frozen=True)
class Status(ShownRecord):
    """Status of a learner, in numbers.

    Attributes:
        seq: deltas applied.
        nodes: in the graph.
        edges: in the graph; an undirected edge counts once.
        classes: known classes.
        labelled: nodes whose class is known.
        features: width of the features, 0 before the first node.
        memory: bytes of graph, embeddings and head.
        predicted: labels that were predicted before they were learned.
        accuracy: the share of these predictions that was correct; None before the first.
        exact_forgetting: whether forgetting a node leaves no trace of it in the learner. How
            columns are read, fitted on the first table, stays in any case.
        metric: what ``accuracy`` measures: accuracy, micro F1 of several labels, or the mean
            absolute error of numbers; ``predicted`` then counts labels given or predicted, or
            numbers.
        relations: whether relations of edges and types of nodes are used.
        solved: deltas included in the scores in use; fewer than ``seq`` while recent deltas wait to
            be solved together.
        undirected: whether edges are undirected.
        better_than_chance: whether labelled nodes, each left out in turn, are predicted better than
            by chance; None while they are too few to tell.
    """

    seq: int
    nodes: int
    edges: int
    classes: int
    labelled: int
    features: int
    memory: int
    predicted: int
    accuracy: float | None
    exact_forgetting: bool
    metric: str = "accuracy"
    relations: bool = False
    solved: int = 0
    undirected: bool = True
    better_than_chance: bool | None = None


@dataclass(frozen=True)
class Answer:
    """Predictions for nodes, in the order of the request."""

    seq: int  # deltas that the predictions include
    predictions: tuple[Any, ...]  # records of the learner's kind of targets
    classes: tuple[Label, ...] | None = None  # all, if their probabilities were requested


class History(TypedDict):
    """Prequential record: how good predictions were before their labels came."""

    curve: list[Point]  # how many predictions were correct, delta by delta
    newest: list[Label]  # the newest classes, newest last
    # Recent predictions for nodes of each of these: as each of them, then as any other class.
    confusion: list[list[int]]


CHANCE = (
    "labelled nodes, each left out in turn, are not predicted better than by chance: neither their "
    "features nor their neighbours seem to tell what is asked"
)


@dataclass(frozen=True, eq=False)
class Reading:
    """A learner between two deltas, for as long as ``LearnerView.reading`` lasts."""

    published: PublishedState
    positions: Tensor  # of the requested nodes.  int64 [n]
    knowledge: Knowledge | None  # None before the first node
    copied: GrowingArray | None  # all vectors, if readers have a copy
    ids: IdTable  # names of all positions

    @cached_property
    def known(self) -> Knowledge:
        """Graph, labels and codes, once there is a node."""
        assert self.knowledge is not None, "a node exists, so there is a graph"
        return self.knowledge

    def vectors(self, positions: Tensor) -> Tensor:
        """Return the vectors of some nodes.  int64 [n] -> float32 [n, dims]"""
        if self.copied is not None:
            return self.copied.tensor[positions]
        return torch.zeros(0, 0) if self.knowledge is None else self.knowledge.of(positions)

    def names(self, positions: Sequence[int]) -> tuple[NodeId, ...]:
        """Return the ids of some nodes."""
        return tuple(map(self.ids.at, positions))

    def targets(self, nodes: Tensor) -> tuple[Any, ...]:
        """Return the targets of nodes, None for those that are not known."""
        numbers, classes = self.known.labels.of(nodes).tolist(), self.known.classes
        return tuple(None if number < 0 else classes.at(number) for number in numbers)

    def named_labels(self, nodes: Tensor) -> tuple[Label | float | None, ...]:
        """Return the same for people: several labels as one text."""
        cell = self.published.target.cell
        return tuple(None if key is None else cell(key) for key in self.targets(nodes))


@dataclass(frozen=True)
class Neighbourhood:
    """The nodes and edges around a node; see ``Ego``.

    Attributes:
        nodes: ids, the node itself first, then the nearest.
        distances: in hops.
        labels: their classes, None for unlabelled nodes.
        edges: source and target as indices into ``nodes``.
        whole: whether no node was left out.
        weights: of these edges, None if all weigh 1.
    """

    nodes: tuple[NodeId, ...]
    distances: tuple[int, ...]
    labels: tuple[Label | float | None, ...]
    edges: tuple[tuple[int, int], ...]
    whole: bool
    weights: tuple[float, ...] | None = None


def neighbourhood(state: Reading, *, hops: int | None, limit: int) -> Neighbourhood:
    """Return at most ``limit`` nodes within ``hops`` of the one node that a question names."""
    knowledge = state.known
    hops = knowledge.embeddings.topology.hops if hops is None else hops
    ego = knowledge.graph.ego(int(state.positions[0]), hops=hops, limit=limit)
    positions = ego.nodes.tolist()
    index = {position: i for i, position in enumerate(positions)}
    return Neighbourhood(
        nodes=state.names(positions),
        distances=tuple(ego.distances.tolist()),
        labels=state.named_labels(ego.nodes),
        edges=tuple((index[a], index[b]) for a, b in ego.edges.t().tolist()),
        whole=ego.whole,
        weights=None if ego.weights is None else tuple(ego.weights.tolist()),
    )
