"""What readers see of a learner while it learns: predictions and how it is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import NothingLearnedError
from evergraph.core.label_space import Kind
from evergraph.core.predictions import THRESHOLD, likeliest, target_values
from evergraph.online.alarms import Alarm
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.array_storage import ArrayStorage
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.hop_states import ROWS
from evergraph.online.heads import Scorer
from evergraph.online.heads.base import class_scores
from evergraph.online.identifiers import IdTable, check_id
from evergraph.online.prequential import Point, Prequential


@dataclass(frozen=True)
class Status:
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
        exact_forgetting: whether a forgotten node leaves no trace.
        metric: what ``accuracy`` is: itself, or micro F1 of several labels, or the mean absolute
            error of numbers; ``predicted`` are then labels that were given or there, or numbers.
        relations: whether it looks at relations of edges and types of nodes, or would from the
            first nodes on.
        solved: after how many deltas the scores in use were solved: fewer than ``seq`` while what
            was counted since waits for more.
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
        alarms: what is no longer as it was, or was so lately.
        raised: how many alarms of each kind were ever raised.
    """

    status: Status
    classes: tuple[Label, ...]
    met: Tensor
    scorer: Scorer | None
    vectors: Callable[[Tensor], Tensor] | None
    dims: int
    kind: Kind = "class"
    alarms: tuple[Alarm, ...] = ()
    raised: Mapping[str, int] = field(default_factory=dict)

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


class LearnerView:
    """The learner as it was after the last whole delta, for any number of readers and one writer.

    A delta is worked on elsewhere. At its end, under a lock, the writer turns the page: the ids
    that came or went, the embeddings that moved, the new scorer. A reader holds the same lock only
    while it looks up ids and copies their embeddings, and scores them after. So no reader waits
    while something is learned, and none sees half a delta.

    For that the view keeps a copy of all embeddings, made when it is first shared (``share``); a
    learner that is used by one thread alone does without.

    Args:
        ids: of nodes; written under the lock only.
        prequential: the record; written under the lock only.
        page: the first page.
    """

    def __init__(self, ids: IdTable, prequential: Prequential, page: Page) -> None:
        self._ids = ids
        self._prequential = prequential
        self._page = page
        self._lock = Lock()
        self._copied: GrowingArray | None = None

    def turn(self, write: Callable[[], Page], moved: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Show what a delta has done.

        write: brings ids and record up to date and returns the new page; moved: positions and
        their embeddings now, in the order in which they changed.
        """
        with self._lock:
            self._page = write()
            for positions, vectors in moved:
                self._copy(positions, vectors)

    def _copy(self, positions: Tensor, vectors: Tensor) -> None:
        if self._copied is not None and len(positions):
            self._copied.extend(max(int(positions.max()) + 1 - len(self._copied), 0))
            self._copied.tensor[positions] = vectors

    def share(
        self,
        vectors: Callable[[Tensor], Tensor],
        positions: int,
        storage: ArrayStorage | None = None,
    ) -> None:
        """Keep a copy of embeddings from now on.

        vectors: of some positions, int64 [n] -> [n, dims]; positions: how many there are; storage:
        where the copy lies unless in memory
        """
        copied = GrowingArray(vectors(torch.empty(0, dtype=torch.int64)).shape[1])
        if storage is not None:
            copied.map_to(storage)
        copied.extend(positions)
        for rows in torch.arange(positions).split(ROWS):
            copied.tensor[rows] = vectors(rows)
        with self._lock:
            self._copied = copied

    def map_to(self, storage: ArrayStorage) -> None:
        """Let the copy, if there is one, lie in a file from now on."""
        with self._lock:
            if self._copied is not None:
                self._copied.map_to(storage)

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        if self._copied is not None:
            yield self._copied

    @property
    def status(self) -> Status:
        """What is known, in numbers."""
        return self._page.status

    @property
    def quick(self) -> bool:
        """Whether predictions for a few nodes take well under a millisecond."""
        return self._page.scorer is None or self._page.scorer.quick

    @property
    def classes(self) -> tuple[Label, ...]:
        """The names of all classes, in order of arrival."""
        return self._page.classes

    @property
    def page(self) -> Page:
        """What the last whole delta left."""
        return self._page

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What is no longer as it was, or was so lately; oldest first."""
        return self._page.alarms

    def embed(self, ids: Sequence[NodeId]) -> Tensor:
        """Return the embeddings of nodes.  -> float32 [ids, dims]"""
        page, _, vectors = self.taken(ids)
        return vectors[:, : page.dims]

    def predict(self, ids: Sequence[NodeId]) -> list[Any]:
        """Return the most likely class of each node, or its labels, or its number."""
        return [
            found.label
            if isinstance(found, Prediction)
            else (found.value if isinstance(found, NumberPrediction) else found.labels)
            for found in self.answer(ids).predictions
        ]

    def answer(self, ids: Sequence[NodeId], *, every_class: bool = False) -> Answer:
        """Return the likeliest class of each node with its probability, or all probabilities."""
        if (few := self._few(ids)) is not None:
            page, all_shares = few
            every = all_shares.tolist() if every_class else None
            return _told(
                page, ids, all_shares.argmax(1).tolist(), all_shares.max(1).tolist(), every
            )
        page, positions, vectors = self.taken(ids)
        if page.kind != "class":
            found = page.values(positions, vectors)
            classes = page.classes if every_class else None
            return Answer(page.status.seq, _predicted(page, ids, found, every_class), classes)
        scores = page.scores(positions, vectors)
        best, shares = (part.flatten().tolist() for part in likeliest(scores))
        told = scores.softmax(1).tolist() if every_class else None
        return _told(page, ids, best, shares, told)

    def _few(self, ids: Sequence[NodeId]) -> tuple[Page, npt.NDArray[np.float32]] | None:
        """Return all probabilities by numpy, for a handful; None where there are no classes."""
        if len(ids) > FEW:
            return None
        for value in ids:
            check_id("id of a node", value)
        with self._lock:
            page = self._page
            if not page.answers_few:
                return None
            positions = [self._ids.position(value) for value in ids]
            vectors = self._rows(page, positions)
        scores = page.few(positions, vectors)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        return page, shares

    def _rows(self, page: Page, positions: list[int]) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32]
        if self._copied is not None:
            found = self._copied.array[positions]
        else:
            assert page.vectors is not None, "there are classes, so there are nodes"
            found = page.vectors(torch.tensor(positions, dtype=torch.int64)).numpy()
        return found

    def predict_proba(self, ids: Sequence[NodeId]) -> tuple[tuple[Label, ...], Tensor]:
        """Return the classes and the probability of each.  -> float32 [ids, classes]"""
        if (few := self._few(ids)) is not None:
            return few[0].classes, torch.from_numpy(few[1])
        page, positions, vectors = self.taken(ids)
        if page.kind != "class":
            return page.classes, page.values(positions, vectors)
        return page.classes, page.scores(positions, vectors).softmax(1)

    def taken(self, ids: Sequence[NodeId]) -> tuple[Page, Tensor, Tensor]:
        """Return the page, and where nodes are with their vectors on it.  [n], [n, dims]"""
        for value in ids:
            check_id("id of a node", value)
        with self._lock:
            page, positions = self._page, self._ids.positions(ids)
            if self._copied is not None:
                return page, positions, self._copied.tensor[positions]
            if page.vectors is not None:
                return page, positions, page.vectors(positions)
            return page, positions, torch.zeros(0, 0)

    def history(self) -> History:
        """Return the prequential curve and the confusion of the newest classes, for JSON."""
        with self._lock:
            classes = self._page.classes if self._page.kind == "class" else ()
            newest = range(max(len(classes) - NEWEST, 0), len(classes))
            return {
                "curve": self._prequential.curve(),
                "newest": [classes[number] for number in newest],
                "confusion": [list(row) for row in self._prequential.confusion(newest).counts],
            }


def _told(
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


def _predicted(
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
