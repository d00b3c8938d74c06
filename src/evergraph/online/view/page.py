"""What is told of a learner after a delta, and the page that holds it until the next delta is done.

A reader holds on to a page, and to all that belongs to it (``Pinned``), while deltas come.
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
    """What a learner knows, in numbers.

    Attributes:
        seq: how many deltas were applied.
        nodes: in the graph now.
        edges: entries of the adjacency: an edge that runs both ways counts twice.
        classes: that have been met.
        labelled: nodes whose class is known.
        features: how wide features are, 0 before the first node.
        memory: bytes of graph, embeddings and head.
        predicted: labels that were predicted before they were learned.
        accuracy: the share of these predictions that was right; None before the first.
        exact_forgetting: whether nothing is left of what was learned from a forgotten node; how
            columns are read, fitted on the first table, stays in any case.
        metric: what ``accuracy`` is: itself, or micro F1 of several labels, or the mean absolute
            error of numbers; ``predicted`` are then labels that were given or there, or numbers.
        relations: whether it looks at relations of edges and types of nodes, or would from the
            first nodes on.
        solved: after how many deltas the scores in use were solved: fewer than ``seq`` while what
            was counted since waits for more.
        undirected: whether edges run both ways, so that there are half as many as entries.
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
        probabilities: of all classes, in the order of ``classes``, if they were asked for.
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
        labels: those that are more likely than not.
        probabilities: of these labels, or of all, in the order of ``classes``, if they were asked
            for.
    """

    id: NodeId
    labels: list[Label]
    probabilities: list[float]


@dataclass(frozen=True)
class NumberPrediction:
    """The number of a node.

    Attributes:
        id: of the node.
        value: the number predicted.
    """

    id: NodeId
    value: float


@dataclass(frozen=True)
class Answer:
    """Classes of nodes, in the order in which they were asked for.

    Attributes:
        seq: after how many deltas this was predicted.
        predictions: one for each node.
        classes: all classes, if they were asked for.
    """

    seq: int
    predictions: tuple[Prediction | LabelsPrediction | NumberPrediction, ...]
    classes: tuple[Label, ...] | None = None


class History(TypedDict):
    """How good predictions were before their labels came: predict, then learn.

    Attributes:
        curve: how often predictions were right, delta after delta.
        newest: the newest classes, newest last.
        confusion: how nodes of each were classified lately: as each of these, then as any other.
    """

    curve: list[Point]
    newest: list[Label]
    confusion: list[list[int]]


@dataclass(frozen=True, eq=False)
class Published:
    """A graph, its normalised adjacency, labels and shown codes as they were after a delta.

    Nothing is copied. What the next deltas change is noted before they change it (``FormerRows``),
    and lists of neighbours that change move elsewhere; so this can be read from any thread, without
    a lock, for as long as somebody holds it.

    Attributes:
        graph: the graph.
        smoother: its Â, by which embeddings were made.
        labels: the number of the class of every position.
        codes: the adjacency of class codes, and which codes are shown; None where there are none.
        embeddings: tell how parts of an embedding are weighted; nothing of their state is read.
        relations: who is joined by which, and what each node sends; None where there are none.
        classes: what they are called; names only come.
        kind: what nodes are said to be.
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
        """Return the classes of nodes, None where one is not known.  int64 [n]"""
        numbers = self.labels.of(nodes.numpy()).tolist()
        return [None if number < 0 else self.classes.at(number) for number in numbers]

    def features(self, nodes: Tensor) -> Tensor:
        """Return the features of some nodes.  int64 [n] -> float32 [n, d]"""
        return torch.from_numpy(self.graph.features.of(nodes.numpy()))


NEWEST = 10  # classes in the confusion
FEW = 64  # nodes up to which calls cost more than arithmetic


@dataclass(frozen=True, eq=False)
class Page:
    """What changes at once when a delta is done.

    Attributes:
        status: numbers.
        classes: the user's names of all classes, in order of arrival.
        met: which of them have nodes.  bool [classes]
        scorer: scores of vectors; None before the first node.
        vectors: looks vectors up where the view keeps no copy; None before the first node.
        dims: of an embedding, which is what a vector begins with.
        kind: what nodes are said to be.
        alarms: the one that predictions are worse than they were, while they are.
        publish: returns what look-ups read; None before the first node.
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
        if self.scorer is None or not bool(self.met.any()):
            raise NothingLearnedError(
                f"no {self.kind} are known yet: tell some nodes' before asking for predictions"
            )
        return target_values(self.scorer(positions, vectors), self.kind)

    def scores(self, positions: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores of all classes, -inf for those without nodes.  -> [n, classes]"""
        if self.scorer is None or not bool(self.met.any()):
            raise NothingLearnedError(
                "no class is known yet: give some nodes labels before asking for predictions"
            )
        return class_scores(self.scorer, self.met, positions, vectors)

    def few(
        self, positions: Sequence[int], vectors: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Return the same for a handful of nodes, up to rounding; some class has nodes."""
        assert self.scorer is not None
        met, known = self._met, self.scorer.few(positions, vectors)
        if known.shape[1] == len(met) and met.all():
            return known
        known = known[:, : len(met)]  # a class may be too new for the scorer, or have no nodes
        scores = np.full((len(positions), len(met)), -np.inf, np.float32)
        np.copyto(scores[:, : known.shape[1]], known, where=met[: known.shape[1]])
        return scores

    def answer(
        self, ids: Sequence[NodeId], positions: Tensor, vectors: Tensor, *, every: bool
    ) -> Answer:
        """Return what is predicted for some nodes; every: with all probabilities."""
        if self.kind == "class":
            scores = self.scores(positions, vectors)
            best, shares = (part.flatten().tolist() for part in likeliest(scores))
            return self.tell(ids, best, shares, scores.softmax(1).tolist() if every else None)
        found: list[LabelsPrediction | NumberPrediction] = []
        for node, row in zip(ids, self.values(positions, vectors).tolist(), strict=True):
            if self.kind == "numbers":
                found.append(NumberPrediction(node, row[0]))
                continue
            likely = [place for place, share in enumerate(row) if share > THRESHOLD]
            labels = [self.classes[place] for place in likely]
            found.append(
                LabelsPrediction(node, labels, row if every else [row[place] for place in likely])
            )
        return Answer(self.status.seq, tuple(found), self.classes if every else None)

    def tell(
        self,
        ids: Sequence[NodeId],
        best: list[int],
        shares: list[float],
        every: list[list[float]] | None,
    ) -> Answer:
        """Return the likeliest classes; every: the probabilities of all, if they were asked for."""
        rows: Sequence[list[float] | None] = [None] * len(best) if every is None else every
        found = (
            Prediction(node, self.classes[number], share, row)
            for node, number, share, row in zip(ids, best, shares, rows, strict=True)
        )
        return Answer(self.status.seq, tuple(found), None if every is None else self.classes)

    @cached_property
    def answers_few(self) -> bool:
        """Whether there are classes to be told, and some of them have nodes."""
        return self.kind == "class" and self.scorer is not None and bool(self.met.any())

    @cached_property
    def _met(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.met.numpy()
        return found


@dataclass(frozen=True, eq=False)
class Pinned:
    """A page with vectors, names and graph as they were when it was the last.

    Attributes:
        page: the page.
        positions: of the nodes that were asked for.  int64 [n]
        copied: the vectors of all positions; None where only one thread reads, which asks the page.
        ids: names of all positions.
        gone: the last link of names that went.
    """

    page: Page
    positions: Tensor
    copied: FrozenRows | None
    ids: IdTable
    gone: GoneNames

    @cached_property
    def published(self) -> Published:
        """The graph, labels and codes."""
        assert self.page.publish is not None, "a node is known, so something is published"
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
