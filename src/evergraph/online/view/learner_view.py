"""The view of a learner that readers share while it learns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from evergraph.core.component import Shown
from evergraph.core.errors import StoppedError, check_integer
from evergraph.core.sizes import shown
from evergraph.core.targets import Target
from evergraph.online.arrays import VectorChange, blocks
from evergraph.online.delta import Label, NodeId
from evergraph.online.identifiers import IdTable, check_id
from evergraph.online.knowledge import Knowledge
from evergraph.online.monitor import Alarm, PredictionRecord
from evergraph.online.view.explanation import Explanation, explain
from evergraph.online.view.published import (
    CLASSES_SHOWN,
    NODES_PER_PART,
    Answer,
    History,
    LentArray,
    PublishedState,
    Reading,
    Status,
)
from evergraph.online.view.suggestions import Suggestion, suggest
from evergraph.tables.scheme import ValuesOf
from evergraph.topology.rowwise import Matrix


class LearnerView(Shown):
    """The learner after the last whole delta, for any number of readers and one writer.

    At the end of a delta the writer, under a lock, publishes the state: new and removed ids, changed
    embeddings, the new scorer. A prediction holds the lock only while it looks up ids and copies
    their embeddings, and computes scores afterwards. So no prediction waits for learning and none
    sees half a delta.

    To this end the view keeps a copy of all embeddings, made when it is first shared (``frozen``).
    A learner used by one thread alone does without it; predictions then wait for the writer.
    Explanations, neighbourhoods and suggestions read the graph itself: they always wait for a delta
    that is being applied, and deltas wait for them (``reading``).

    A child that is forked can read and change what it has a whole copy of; what another thread was
    changing raises (``renew_after_fork``).
    """

    published: PublishedState  # the state after the last whole delta

    def __init__(self, target: Target) -> None:
        self._ids = IdTable()
        self._record = PredictionRecord(target)
        self._knowledge: Knowledge | None = None  # comes with the first node
        self._lock: Lock | _HalfApplied = Lock()  # held while ids and record are written
        self.writing: RLock | _HalfApplied = RLock()
        _open.add(self)
        self._changes = 0  # deltas that are being applied, one in the other
        self._shared = False  # whether predictions are made while deltas come
        self._copied: LentArray | None = None

    def renew_after_fork(self) -> None:
        """Replace locks that threads of the parent held, which no thread here will release."""
        if isinstance(self.writing, _HalfApplied):
            return
        if self.writing.acquire(blocking=False):
            self.writing.release()
            self._lock = Lock()
        elif self._changes:
            self._lock = self.writing = _HalfApplied()
        else:  # a reader held it
            self._lock, self.writing = Lock(), RLock()

    def publish(
        self, write: Callable[[], PublishedState], changes: Sequence[VectorChange] = ()
    ) -> None:
        """Make a delta visible to readers.

        write: updates ids and record and returns the new state; changes: of vectors, if readers
        have a copy of them
        """
        with self._lock:
            self.published = write()
            if self._copied is not None:
                for nodes, vectors, columns in changes:
                    self._copied.change(nodes, vectors, columns)

    @property
    def record(self) -> PredictionRecord:
        """The record of predictions that were made before their labels came."""
        return self._record

    def status(self) -> Status:
        """Return the status in numbers."""
        return self.published.status

    @property
    def classes(self) -> tuple[Label, ...]:
        """The names of all classes, in order of arrival."""
        return self.published.classes

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the accuracy alarm while it is raised."""
        return self.published.alarms

    def embed(self, ids: Sequence[NodeId]) -> Tensor:
        """Return the embeddings of nodes.  -> float32 [ids, dims]"""
        published, vectors = self.taken(ids)
        return torch.from_numpy(vectors[:, : published.dims])

    def predict(self, ids: Sequence[NodeId]) -> list[Any]:
        """Return the most likely class of each node, or its labels, or its number."""
        column = self.published.target.column
        return [getattr(prediction, column) for prediction in self.answer(ids).predictions]

    def answer(self, ids: Sequence[NodeId], *, every_class: bool = False) -> Answer:
        """Return the likeliest class of each node with its probability, or all probabilities."""
        published, vectors = self.taken(ids)
        return published.answer(ids, vectors, every=every_class)

    def answer_beside_known(
        self, ids: Sequence[NodeId], *, every_class: bool = False
    ) -> tuple[Answer, tuple[Any, ...]]:
        """Return what ``answer`` does, and the target that is known of each node, or None."""
        with self.reading(ids) as state:
            answer = self.answer(ids, every_class=every_class)
            return answer, state.targets(state.positions) if len(ids) else ()

    def answers(self, ids: Sequence[NodeId], *, every_class: bool = False) -> Iterator[Answer]:
        """Yield the predictions of a shared view in parts, all of the same state.

        Always of ``NODES_PER_PART`` nodes: with others the last digits would differ.
        """
        with self._lock:
            published, positions = self.published, self._ids.positions(ids).numpy()
            assert self._copied is not None, "the view is shared"
            vectors = self._copied.lend(positions)
        for part in blocks(len(ids), NODES_PER_PART):
            with self._lock:
                rows = vectors.rows(positions[part])
            yield published.answer(ids[part], rows, every=every_class)

    def predict_proba(self, ids: Sequence[NodeId]) -> tuple[tuple[Label, ...], Tensor]:
        """Return the classes and the probability of each.  -> float32 [ids, classes]"""
        published, vectors = self.taken(ids)
        return published.classes, torch.from_numpy(published.shares(vectors))

    def taken(self, ids: Sequence[NodeId]) -> tuple[PublishedState, Matrix]:
        """Return the published state, and the vectors of nodes in it.  [n, dims]"""
        for value in ids:
            check_id("id of a node", value)
        with self._between_deltas(), self._lock:
            positions = np.array([self._ids.position(value) for value in ids], np.int64)
            if self._copied is not None:  # by NumPy: torch takes longer to begin than it to finish
                return self.published, self._copied.array[positions]
            vectors: Matrix = np.zeros((0, 0), np.float32)
            if self._knowledge is not None:
                vectors = self._knowledge.rows(positions)
            return self.published, vectors

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold ``writing`` while the state is not whole."""
        with self.writing:
            self._changes += 1
            try:
                yield
            finally:
                self._changes -= 1

    def _between_deltas(self) -> AbstractContextManager[Any]:
        """Return what waits for a delta that is being applied, if readers have no copy."""
        return nullcontext() if self._shared else self.writing

    @contextmanager
    def reading(self, ids: Sequence[NodeId] = ()) -> Iterator[Reading]:
        """Keep the learner as it is between two deltas, which wait while the ``with`` lasts."""
        for value in ids:
            check_id("id of a node", value)
        with self.writing:
            positions = self._ids.positions(ids)
            yield Reading(self.published, positions, self._knowledge, self._ids)

    def ids_from(self, start: int, limit: int) -> tuple[list[NodeId], int | None]:
        """Return a page of ids, and where the next starts; see ``IdTable.page``."""
        with self._lock:
            return self._ids.page(start, limit)

    def explain(
        self,
        node: NodeId,
        *,
        top: int = 3,
        limit: int = 20,
        columns: Sequence[str] = (),
        values: ValuesOf | None = None,
    ) -> Explanation:
        """Explain the prediction for a node by what nodes around it and columns contribute.

        top: how many classes; limit: of nodes, and of columns; columns: the user's, of each
        feature; values: finds the categories and words of nodes, to be named
        """
        with self.reading([node]) as state:
            return explain(state, node, top=top, limit=limit, columns=columns, values=values)

    def neighbourhood(
        self, node: NodeId, *, hops: int | None = None, limit: int = 60
    ) -> Neighbourhood:
        """Return the neighbourhood of a node, to be drawn.

        hops: how far, by default as far as an embedding reaches; limit: how many nodes at most.
        """
        with self.reading([node]) as state:
            return neighbourhood(state, hops=hops, limit=limit)

    def suggest(self, n: int, *, among: Sequence[NodeId] | None = None) -> tuple[Suggestion, ...]:
        """Return unlabelled nodes that are worth labelling next, the best first.

        Computed from the last whole delta; equal learners give equal answers.

        n: how many at most; among: candidates, by default all unlabelled nodes.

        >>> import torch
        >>> from evergraph.online import Delta, OnlineLearner
        >>> learner = OnlineLearner()
        >>> _ = learner.apply(Delta(nodes="abcd", features=torch.eye(4), labels=[None] * 4,
        ...                         edges=(("a", "b"), ("a", "c"))))
        >>> [(found.id, found.reach) for found in learner.suggest(2)]
        [('a', 2), ('d', 0)]
        """
        check_integer("n", n, least=1)
        with self.reading(() if among is None else among) as state:
            if state.knowledge is None:
                return ()
            candidates = None if among is None else state.positions.numpy()
            return suggest(state, n, among=candidates)

    def history(self) -> History:
        """Return the prequential curve and the confusion of the newest classes."""
        with self._lock:
            classes = self.published.classes if self.published.target.is_class else ()
            newest = range(max(len(classes) - CLASSES_SHOWN, 0), len(classes))
            return {
                "curve": self._record.prequential.curve(),
                "newest": [classes[number] for number in newest],
                "confusion": self._record.prequential.confusion(newest),
            }

    def _repr_facts(self) -> dict[str, object]:
        status = self.status()
        facts = {name: getattr(status, name) for name in ("nodes", "edges", "classes", "labelled")}
        return facts | {"deltas": status.seq}

    def _repr_table(self) -> dict[str, object]:
        status = self.status()
        metric = "-" if status.accuracy is None else f"{status.accuracy:.3f}"
        prequential = {f"{status.metric} before labels came": f"{metric} of {status.predicted}"}
        return self._repr_facts() | prequential | {"memory": shown(status.memory)}


class _HalfApplied:
    """In place of the locks of a learner that may hold half a delta."""

    def __enter__(self) -> None:
        raise StoppedError(
            "this process was forked while a thread of its parent was changing the model: fork it "
            "while none is, or open or make the model in the child"
        )

    def __exit__(self, *_: object) -> None:
        return None


_open: WeakSet[LearnerView] = WeakSet()  # of this process


def _renew_after_fork() -> None:
    for view in list(_open):
        view.renew_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_after_fork)


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
