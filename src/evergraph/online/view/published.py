"""What readers see after a delta: the state, copied vectors, and the records they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
from torch import Tensor

from evergraph.core.component import ShownRecord
from evergraph.core.errors import NothingLearnedError
from evergraph.core.targets import Target
from evergraph.online.arrays import Array, GrowingArray
from evergraph.online.delta import Label, NodeId
from evergraph.online.heads import Scorer
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge
from evergraph.online.monitor import Alarm, Point
from evergraph.topology.rowwise import Matrix


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
CLASSES_SHOWN = 10  # classes in the confusion matrix
NODES_PER_PART = 64  # of an answer; so few cost less looked up one by one than by torch


@dataclass(frozen=True, eq=False)
class PublishedState:
    """The readable state of a learner, replaced as a whole when a delta is done."""

    status: Status
    classes: tuple[Label, ...]  # names of all classes, in order of arrival
    met: Tensor  # which of them have nodes.  bool [classes]
    scorer: Scorer | None  # None before the first node
    dims: int  # of an embedding, which is the first part of a vector
    target: Target
    alarms: tuple[Alarm, ...] = ()

    @cached_property
    def has_learned(self) -> bool:
        """Whether there is anything to predict."""
        return self.scorer is not None and bool(self.met.any())

    def scores(self, vectors: Matrix) -> Matrix:
        """Return the scores of classes, -inf for those without nodes, or of other targets.

        -> [n, targets]
        """
        if self.scorer is None or not self.has_learned:
            raise NothingLearnedError("nothing is labelled yet: label some nodes before predicting")
        return self.scorer(vectors)

    def shares(self, vectors: Matrix) -> Matrix:
        """Return the probabilities of classes or labels; numbers as they are.  -> [n, targets]"""
        return self.target.shares(self.scores(vectors))

    def answer(self, ids: Sequence[NodeId], vectors: Matrix, *, every: bool) -> Answer:
        """Return the predictions for some nodes; every: with the probabilities of all classes."""
        scores = self.scores(vectors)
        predictions = self.target.answers(ids, scores, self.classes, every=every)
        return Answer(self.status.seq, predictions, self.classes if every else None)


@dataclass(frozen=True, eq=False)
class Reading:
    """A learner between two deltas, for as long as ``LearnerView.reading`` lasts."""

    published: PublishedState
    positions: Tensor  # of the requested nodes.  int64 [n]
    knowledge: Knowledge | None  # None before the first node
    ids: IdTable  # names of all positions

    @cached_property
    def known(self) -> Knowledge:
        """Graph, labels and codes, once there is a node."""
        assert self.knowledge is not None, "a node exists, so there is a graph"
        return self.knowledge

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


class LentArray(GrowingArray):
    """An array of which readers borrow rows while others are added and changed, under one lock.

    >>> import torch
    >>> ages = LentArray(dtype=np.int64)
    >>> ages.change(torch.arange(2), torch.tensor([4, 5]))
    >>> lent = ages.lend(np.array([1]))
    >>> ages.change(torch.tensor([1]), torch.tensor([7]))
    >>> lent.rows(np.array([1])), ages.array
    (array([5]), array([4, 7]))
    """

    def __init__(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> None:
        super().__init__(*shape, dtype=dtype)
        self._loans: WeakSet[Loan] = WeakSet()  # until nobody is going to read them

    def lend(self, positions: Array) -> Loan:
        """Return some rows as they are now.  int64 [n]"""
        loan = Loan(self, positions)
        self._loans.add(loan)
        return loan

    def change(self, positions: Tensor, rows: Tensor, columns: slice | None = None) -> None:
        """Add or overwrite rows, or some columns of them.  int64 [n], [n, ...]"""
        if len(positions):
            self.extend(max(int(positions.max()) + 1 - len(self), 0))
            for loan in self._loans:
                loan.save(positions.numpy())
            wanted = (positions,) if columns is None else (positions, columns)
            self.tensor[wanted] = rows


class Loan:
    """Some rows of a ``LentArray`` as they were when they were lent."""

    def __init__(self, array: GrowingArray, wanted: Array) -> None:
        self._array = array
        self._wanted = set(wanted.tolist())
        self._saved: dict[int, Array] = {}  # by position

    def save(self, positions: Array) -> None:
        """Save rows that are about to be overwritten.  int64 [n]"""
        for position in self._wanted.intersection(positions.tolist()):
            self._saved[position] = self._array.array[position].copy()
            self._wanted.remove(position)

    def rows(self, positions: Array) -> Array:
        """Return a copy of some of the rows as they were.  int64 [n] -> [n, ...]"""
        rows = self._array.array[positions]
        for place, position in enumerate(positions.tolist()):
            if position in self._saved:
                rows[place] = self._saved[position]
        return rows
