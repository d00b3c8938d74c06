"""The state that readers see after a delta (``Page``), and the records they are given.

A reader can hold on to a page and all that belongs to it (``Pinned``) while further deltas come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.display import ShownRecord
from evergraph.core.errors import NothingLearnedError
from evergraph.core.label_space import THRESHOLD, Kind, likeliest, target_values
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.frozen_graph import FrozenGraph
from evergraph.online.graph.growing_array import FrozenRows
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_relations import FrozenRelations
from evergraph.online.graph.live_smoother import FrozenSmoother
from evergraph.online.heads import Scorer
from evergraph.online.heads.base import class_scores
from evergraph.online.identifiers import GoneNames, IdTable
from evergraph.online.monitor import Alarm, Point


@dataclass(frozen=True)
class Status(ShownRecord):
    """Status of a learner, in numbers.

    Attributes:
        seq: deltas applied.
        nodes: in the graph.
        edges: entries of the adjacency: an undirected edge counts twice.
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
        undirected: whether edges are undirected, so that there are half as many as entries.
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


@dataclass(frozen=True)
class Prediction:
    """The class of a node.

    Attributes:
        id: of the node.
        label: the likeliest class.
        probability: of that class.
        probabilities: of all classes, in the order of ``classes``, if requested.
    """

    id: NodeId
    label: Label
    probability: float
    probabilities: list[float] | None = None


@dataclass(frozen=True)
class LabelsPrediction:
    """The labels of a node.

    Attributes:
        id: of the node.
        labels: those with a probability above one half.
        probabilities: of these labels; or of all, in the order of ``classes``, if requested.
    """

    id: NodeId
    labels: list[Label]
    probabilities: list[float]


@dataclass(frozen=True)
class NumberPrediction:
    """The number of a node.

    Attributes:
        id: of the node.
        value: the predicted number.
    """

    id: NodeId
    value: float


@dataclass(frozen=True)
class Answer:
    """Predictions for nodes, in the order of the request.

    Attributes:
        seq: deltas that the predictions include.
        predictions: one for each node.
        classes: all classes, if their probabilities were requested.
    """

    seq: int
    predictions: tuple[Prediction | LabelsPrediction | NumberPrediction, ...]
    classes: tuple[Label, ...] | None = None


class History(TypedDict):
    """Prequential record: how good predictions were before their labels came.

    Attributes:
        curve: how many predictions were correct, delta by delta.
        newest: the newest classes, newest last.
        confusion: recent predictions for nodes of each of these classes: as each of them, then as
            any other.
    """

    curve: list[Point]
    newest: list[Label]
    confusion: list[list[int]]


@dataclass(frozen=True, eq=False)
class Published:
    """Graph, normalised adjacency, labels and class codes, frozen after a delta.

    Nothing is copied up front. Later deltas save the old rows before they overwrite them
    (``FormerRows``) and move changed neighbour lists elsewhere. So any thread can read this without
    a lock, for as long as it holds it.

    Attributes:
        graph: the graph.
        smoother: its Â, from which the embeddings were made.
        labels: class number of every position.
        codes: the adjacency for class codes, and the visible codes; None without class codes.
        embeddings: how parts of an embedding are weighted; their state is not read.
        relations: edges by relation, and what each node sends along them; None without relations.
        classes: names of classes, which are only ever added.
        kind: of the targets: class, labels or numbers.
    """

    graph: FrozenGraph
    smoother: FrozenSmoother
    labels: FrozenRows
    codes: tuple[FrozenSmoother, FrozenRows] | None
    embeddings: LiveEmbeddings
    relations: FrozenRelations | None
    classes: IdTable
    kind: Kind

    def named_labels(self, nodes: Tensor) -> list[Label | None]:
        """Return the classes of nodes, None for an unlabelled one.  int64 [n]"""
        numbers = self.labels.of(nodes.numpy()).tolist()
        return [None if number < 0 else self.classes.at(number) for number in numbers]

    def features(self, nodes: Tensor) -> Tensor:
        """Return the features of some nodes.  int64 [n] -> float32 [n, d]"""
        return torch.from_numpy(self.graph.features.of(nodes.numpy()))


NEWEST = 10  # classes in the confusion matrix
FEW = 64  # up to so many nodes, calls into torch cost more than the arithmetic


@dataclass(frozen=True, eq=False)
class Page:
    """The readable state of a learner, replaced as a whole when a delta is done.

    Attributes:
        status: numbers.
        classes: names of all classes, in order of arrival.
        met: which of them have nodes.  bool [classes]
        scorer: scores vectors; None before the first node.
        vectors: returns vectors by position if the view keeps no copy; None before the first node.
        dims: of an embedding, which is the first part of a vector.
        kind: of the targets: class, labels or numbers.
        alarms: the accuracy alarm while it is raised.
        publish: returns the frozen graph for look-ups; None before the first node.
    """

    status: Status
    classes: tuple[Label, ...]
    met: Tensor
    scorer: Scorer | None
    vectors: Callable[[Tensor], Tensor] | None
    dims: int
    kind: Kind = "class"
    alarms: tuple[Alarm, ...] = ()
    publish: Callable[[], Published] | None = None

    def values(self, positions: Tensor, vectors: Tensor) -> Tensor:
        """Return probabilities of labels, or numbers.  -> [n, targets]"""
        return target_values(self._learned_scorer()(positions, vectors), self.kind)

    def scores(self, positions: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores of all classes, -inf for those without nodes.  -> [n, classes]"""
        return class_scores(self._learned_scorer(), self.met, positions, vectors)

    def _learned_scorer(self) -> Scorer:
        if self.scorer is None or not bool(self.met.any()):
            raise NothingLearnedError("nothing is labelled yet: label some nodes before predicting")
        return self.scorer

    def few(
        self, positions: Sequence[int], vectors: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Return ``scores`` for a few nodes by numpy, equal up to rounding; needs a known class."""
        assert self.scorer is not None
        met, known = self.met.numpy(), self.scorer.few(positions, vectors)
        if known.shape[1] == len(met) and met.all():
            return known
        # The scorer may not know the newest classes yet, and classes without nodes are masked.
        known = known[:, : len(met)]
        scores = np.full((len(positions), len(met)), -np.inf, np.float32)
        np.copyto(scores[:, : known.shape[1]], known, where=met[: known.shape[1]])
        return scores

    def answer(
        self, ids: Sequence[NodeId], positions: Tensor, vectors: Tensor, *, every: bool
    ) -> Answer:
        """Return the predictions for some nodes; every: with the probabilities of all classes."""
        if self.kind == "class":
            scores = self.scores(positions, vectors)
            best, shares = (part.flatten().tolist() for part in likeliest(scores))
            every_share = scores.softmax(1).tolist() if every else None
            return self.class_answer(ids, best, shares, every_share)
        found: list[LabelsPrediction | NumberPrediction] = []
        for node, row in zip(ids, self.values(positions, vectors).tolist(), strict=True):
            if self.kind == "numbers":
                found.append(NumberPrediction(node, row[0]))
                continue
            likely = [number for number, share in enumerate(row) if share > THRESHOLD]
            labels = [self.classes[number] for number in likely]
            found.append(
                LabelsPrediction(node, labels, row if every else [row[number] for number in likely])
            )
        return Answer(self.status.seq, tuple(found), self.classes if every else None)

    def class_answer(
        self,
        ids: Sequence[NodeId],
        best: list[int],
        shares: list[float],
        every: list[list[float]] | None,
    ) -> Answer:
        """Return the likeliest classes; every: the probabilities of all classes, if requested."""
        rows: Sequence[list[float] | None] = [None] * len(best) if every is None else every
        found = (
            Prediction(node, self.classes[number], share, row)
            for node, number, share, row in zip(ids, best, shares, rows, strict=True)
        )
        return Answer(self.status.seq, tuple(found), None if every is None else self.classes)

    @cached_property
    def answers_few(self) -> bool:
        """Whether ``few`` can be used: targets are classes, and one has nodes."""
        return self.kind == "class" and self.scorer is not None and bool(self.met.any())


@dataclass(frozen=True, eq=False)
class Pinned:
    """A page with the vectors, names and graph that belong to it.

    Attributes:
        page: the page.
        positions: of the requested nodes.  int64 [n]
        copied: the vectors of all positions; None if only one thread reads, from the page itself.
        ids: names of all positions.
        gone: newest link in the chain of removed names.
    """

    page: Page
    positions: Tensor
    copied: FrozenRows | None
    ids: IdTable
    gone: GoneNames

    @cached_property
    def published(self) -> Published:
        """The graph, labels and codes."""
        assert self.page.publish is not None, "a node exists, so a graph is published"
        return self.page.publish()

    def vectors(self, positions: Tensor) -> Tensor:
        """Return the vectors of some nodes.  int64 [n] -> float32 [n, dims]"""
        if self.copied is not None:
            return torch.from_numpy(self.copied.of(positions.numpy()))
        if self.page.vectors is None:
            return torch.zeros(0, 0)
        return self.page.vectors(positions)

    def names(self, positions: Sequence[int]) -> list[NodeId]:
        """Return the ids of some nodes."""
        return self.ids.named(positions, self.gone)
