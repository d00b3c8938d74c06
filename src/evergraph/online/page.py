"""What is told of a learner after a delta: predictions, numbers, and the page that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.component import ShownRecord
from evergraph.core.errors import NothingLearnedError
from evergraph.core.label_space import Kind
from evergraph.core.predictions import THRESHOLD, likeliest, target_values
from evergraph.online.alarms import Alarm
from evergraph.online.delta import Label, NodeId
from evergraph.online.heads import Scorer
from evergraph.online.heads.base import class_scores
from evergraph.online.prequential import Point
from evergraph.online.published import Published


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

    @cached_property
    def answers_few(self) -> bool:
        """Whether there are classes to be told, and some of them have nodes."""
        return self.kind == "class" and self.scorer is not None and bool(self.met.any())

    @cached_property
    def _met(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.met.numpy()
        return found


def told_classes(
    page: Page,
    ids: Sequence[NodeId],
    best: list[int],
    shares: list[float],
    every: list[list[float]] | None,
) -> Answer:
    """Return the likeliest classes; every: the probabilities of all, if they were asked for."""
    rows: Sequence[list[float] | None] = [None] * len(best) if every is None else every
    return Answer(
        seq=page.status.seq,
        classes=None if every is None else page.classes,
        predictions=tuple(
            Prediction(node, page.classes[number], share, row)
            for node, number, share, row in zip(ids, best, shares, rows, strict=True)
        ),
    )


def told_values(
    page: Page, ids: Sequence[NodeId], values: Tensor, every: bool
) -> tuple[LabelsPrediction | NumberPrediction, ...]:
    """Return numbers, or labels that are more likely than not; every: with all probabilities."""
    if page.kind == "numbers":
        pairs = zip(ids, values[:, 0].tolist(), strict=True)
        return tuple(NumberPrediction(node, value) for node, value in pairs)
    found = []
    for node, row in zip(ids, values.tolist(), strict=True):
        given = [place for place, share in enumerate(row) if share > THRESHOLD]
        labels, shares = [page.classes[place] for place in given], [row[place] for place in given]
        found.append(LabelsPrediction(node, labels, row if every else shares))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Scored:
    """What was computed for some nodes, to be told later: much smaller than what is told.

    Attributes:
        page: from which it was computed.
        every: whether the probabilities of all classes are to be told.
        values: of classes, labels or numbers.  float32 [n, targets]
        best: the likeliest class of each node, and its probability; None where ``values`` are told.
    """

    page: Page
    every: bool
    values: Tensor
    best: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, page: Page, positions: Tensor, vectors: Tensor, *, every: bool) -> Scored:
        """Compute for some nodes what is asked for.  int64 [n], float32 [n, dims]"""
        if page.kind != "class":
            return cls(page, every, page.values(positions, vectors))
        scores = page.scores(positions, vectors)
        best, shares = (part.flatten() for part in likeliest(scores))
        values = scores.softmax(1) if every else torch.empty(len(scores), 0)
        return cls(page, every, values, (best, shares))

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, rows: int) -> Scored:
        """Return the same of some of the nodes."""
        chosen = slice(start, start + rows)
        best = None if self.best is None else (self.best[0][chosen], self.best[1][chosen])
        return Scored(self.page, self.every, self.values[chosen], best)

    def told(self, ids: Sequence[NodeId]) -> Answer:
        """Return the answer for these nodes."""
        page = self.page
        if self.best is None:
            classes = page.classes if self.every else None
            rows = told_values(page, ids, self.values, self.every)
            return Answer(page.status.seq, rows, classes)
        best, shares = (part.tolist() for part in self.best)
        return told_classes(page, ids, best, shares, self.values.tolist() if self.every else None)
