"""What readers see of a learner while it learns: predictions, look-ups and how it is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.display import Shown, line_chart
from evergraph.core.errors import DataError
from evergraph.online.array_storage import ArrayStorage
from evergraph.online.delta import Label, NodeId, meant_by
from evergraph.online.graph.growing_array import FormerRows, FrozenRows, GrowingArray
from evergraph.online.graph.live_embeddings import ROWS
from evergraph.online.identifiers import IdTable, check_id
from evergraph.online.monitor import Alarm, Point, Prequential
from evergraph.online.view.explanation import Explanation, explain
from evergraph.online.view.page import (
    FEW,
    NEWEST,
    Answer,
    History,
    NumberPrediction,
    Page,
    Pinned,
    Prediction,
    Published,
    Status,
)
from evergraph.online.view.suggestions import Suggestion, suggest


class LearnerView(Shown):
    """The learner as it was after the last whole delta, for any number of readers and one writer.

    A delta is worked on elsewhere. At its end, under a lock, the writer turns the page: the ids
    that came or went, the embeddings that moved, the new scorer. A reader holds the same lock only
    while it looks up ids and copies their embeddings, and scores them after. So no reader waits
    while something is learned, and none sees half a delta.

    For that the view keeps a copy of all embeddings, made when it is first shared (``share``). A
    learner that is used by one thread alone does without; who looks up more than predictions then
    waits for the writer (``pinned``).

    Nothing here changes what was learned. Scores are solved by whoever learns, see ``Solving``.

    Args:
        ids: of nodes; written under the lock only.
        prequential: the record; written under the lock only.
        page: the first page.
    """

    def __init__(self, ids: IdTable, prequential: Prequential, page: Page) -> None:
        self._ids = ids
        self._prequential = prequential
        self.page = page  # what the last whole delta left
        self._lock = Lock()
        self._writing = RLock()  # held while a delta is applied
        self._shared = False  # whether what is published stays while deltas come
        self._copied: GrowingArray | None = None
        self._former = FormerRows()  # of the copy, noted while somebody reads it without the lock
        self._pins = 0

    def turn(self, write: Callable[[], Page], moved: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Show what a delta has done.

        write: brings ids and record up to date and returns the new page; moved: positions and
        their embeddings now, in the order in which they changed.
        """
        with self._lock:
            self.page = write()
            for positions, vectors in moved:
                self._copy(positions, vectors)

    def _copy(self, positions: Tensor, vectors: Tensor) -> None:
        if self._copied is not None and len(positions):
            self._copied.extend(max(int(positions.max()) + 1 - len(self._copied), 0))
            if self._pins:
                places = positions.numpy()
                self._former.note(places, self._copied.array[places])
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
            self._copied, self._former = copied, FormerRows()

    def map_to(self, storage: ArrayStorage) -> None:
        """Let the copy, if there is one, lie in a file from now on."""
        with self._lock:
            if self._copied is not None:
                self._copied.map_to(storage)

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        if self._copied is not None:
            yield self._copied

    def status(self) -> Status:
        """Return what is known, in numbers."""
        return self.page.status

    @property
    def quick(self) -> bool:
        """Whether predictions for a few nodes take well under a millisecond."""
        return self.page.scorer is None or self.page.scorer.quick

    @property
    def classes(self) -> tuple[Label, ...]:
        """The names of all classes, in order of arrival."""
        return self.page.classes

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarm that predictions are worse than they were, while they are."""
        return self.page.alarms

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
            page, shares = few
            every = shares.tolist() if every_class else None
            return page.tell(ids, shares.argmax(1).tolist(), shares.max(1).tolist(), every)
        page, positions, vectors = self.taken(ids)
        return page.answer(ids, positions, vectors, every=every_class)

    def _few(self, ids: Sequence[NodeId]) -> tuple[Page, npt.NDArray[np.float32]] | None:
        """Return all probabilities by numpy, for a handful; None where there are no classes."""
        if len(ids) > FEW:
            return None
        for value in ids:
            check_id("id of a node", value)
        with self._lock:
            page = self.page
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
            page, positions = self.page, self._ids.positions(ids)
            if self._copied is not None:
                return page, positions, self._copied.tensor[positions]
            if page.vectors is not None:
                return page, positions, page.vectors(positions)
            return page, positions, torch.zeros(0, 0)

    @contextmanager
    def pinned(self, ids: Sequence[NodeId] = ()) -> Iterator[Pinned]:
        """Give what is published, and where nodes are in it, to be read for as long as it takes.

        Where the view is shared, deltas come meanwhile, and neither waits for the other. Nothing of
        them is seen. Where it is not, one that is being applied is waited for.
        """
        waits: AbstractContextManager[Any] = nullcontext() if self._shared else self._writing
        with waits:
            with self._lock:
                page, copied = self.page, self._copied
                for node in ids:
                    if node not in self._ids:
                        raise self._ids.unknown(node)
                positions = self._ids.positions(ids)
                rows = None if copied is None else FrozenRows(copied, self._former.now, len(copied))
                pinned = Pinned(page, positions, rows, self._ids, self._ids.gone)
                self._pins += 1
            try:
                yield pinned
            finally:
                with self._lock:
                    self._pins -= 1

    def ids_from(self, start: int, limit: int) -> tuple[list[NodeId], int | None]:
        """Return some ids, and where to go on; see ``IdTable.page``."""
        with self._lock:
            return self._ids.page(start, limit)

    def explain(self, node: NodeId, *, top: int = 3, limit: int = 20) -> Explanation:
        """Return why a node is classified as it is.

        top: how many classes; limit: how many nodes are named at most.
        """
        with self.pinned([node]) as pinned:
            return self._explained(pinned, node, top, limit)

    @staticmethod
    def _explained(pinned: Pinned, node: NodeId, top: int, limit: int) -> Explanation:
        kind = pinned.page.kind
        if kind != "class":
            raise DataError(f"explain tells of classes, and this learner has {kind}")
        return explain(pinned, node, top=top, limit=limit)

    def neighbourhood(
        self, node: NodeId, *, hops: int | None = None, limit: int = 60
    ) -> Neighbourhood:
        """Return what lies around a node, to be drawn.

        hops: how far; as far as an embedding looks unless given. limit: how many nodes at most.
        """
        with self.pinned([node]) as pinned:
            return neighbourhood(pinned, hops=hops, limit=limit)

    def looked_up(self, node: NodeId, *, top: int, limit: int) -> tuple[Neighbourhood, Explanation]:
        """Return what lies around a node and why it is classified as it is, both as of one delta.

        limit: how many nodes and voices at most.
        """
        with self.pinned([node]) as pinned:
            around = neighbourhood(pinned, hops=None, limit=limit)
            return around, self._explained(pinned, node, top, limit)

    def suggest(self, n: int, *, among: Sequence[NodeId] | None = None) -> tuple[Suggestion, ...]:
        """Return unlabelled nodes worth asking a person about, the first one first.

        Of what is known after the last whole delta. The same learner always gives the same answer.

        n: how many at most; among: which nodes may be asked about, all unless given.

        >>> import torch
        >>> from evergraph.online import Delta, OnlineLearner
        >>> learner = OnlineLearner()
        >>> _ = learner.apply(Delta(nodes="abcd", features=torch.eye(4), labels=[None] * 4,
        ...                         edges=(("a", "b"), ("a", "c"))))
        >>> [(found.id, found.reach) for found in learner.suggest(2)]
        [('a', 2), ('d', 0)]
        """
        return self.suggestions(n, among=among)[1]

    def suggestions(
        self, n: int, *, among: Sequence[NodeId] | None = None
    ) -> tuple[int, tuple[Suggestion, ...]]:
        """Return the same, and after which delta."""
        check_integer("n", n, least=1)
        with self.pinned(() if among is None else among) as pinned:
            seq = pinned.page.status.seq
            if pinned.page.publish is None:
                return seq, ()
            places = None if among is None else pinned.positions.numpy()
            return seq, suggest(pinned, n, among=places)

    def history(self) -> History:
        """Return the prequential curve and the confusion of the newest classes, for JSON."""
        with self._lock:
            classes = self.page.classes if self.page.kind == "class" else ()
            newest = range(max(len(classes) - NEWEST, 0), len(classes))
            return {
                "curve": self._prequential.curve(),
                "newest": [classes[number] for number in newest],
                "confusion": self._prequential.confusion(newest),
            }

    def _repr_facts(self) -> dict[str, object]:
        status = self.status()
        facts = {name: getattr(status, name) for name in ("nodes", "edges", "classes", "labelled")}
        return facts | {"deltas": status.seq}

    def _repr_table(self) -> dict[str, object]:
        status = self.status()
        found = "-" if status.accuracy is None else f"{status.accuracy:.3f}"
        before = {f"{status.metric} before labels came": f"{found} of {status.predicted}"}
        return self._repr_facts() | before | {"bytes": status.memory}

    def _repr_pictures(self) -> str:
        return history_chart(self.history(), self.status())


@dataclass(frozen=True)
class Neighbourhood:
    """A node's surroundings; see ``Ego``.

    Attributes:
        nodes: ids, the node itself first, then the nearest.
        distances: how many hops away each is.
        labels: their classes, None where not known.
        edges: pairs of places in ``nodes``, source and target.
        whole: whether none was left out.
        weights: of these edges, None where all weigh 1.
    """

    nodes: tuple[NodeId, ...]
    distances: tuple[int, ...]
    labels: tuple[Label | None, ...]
    edges: tuple[tuple[int, int], ...]
    whole: bool
    weights: tuple[float, ...] | None = None


def neighbourhood(pinned: Pinned, *, hops: int | None, limit: int) -> Neighbourhood:
    """Return at most ``limit`` nodes within ``hops`` of the one node that is pinned."""
    published = pinned.published
    reach = published.embeddings.topology.hops if hops is None else hops
    near = published.graph.ego(int(pinned.positions[0]), hops=reach, limit=limit)
    positions = near.nodes.tolist()
    places = {position: place for place, position in enumerate(positions)}
    numbers = published.labels.of(near.nodes.numpy()).tolist()
    return Neighbourhood(
        nodes=tuple(pinned.names(positions)),
        distances=tuple(near.distances.tolist()),
        labels=tuple(None if n < 0 else _shown(published, n) for n in numbers),
        edges=tuple((places[a], places[b]) for a, b in near.edges.t().tolist()),
        whole=near.whole,
        weights=None if near.weights is None else tuple(near.weights.tolist()),
    )


def _shown(published: Published, number: int) -> Label:
    """Return a class as it is called; several labels as one text."""
    name = published.classes.at(number)
    if published.kind != "labels":
        return name
    told = meant_by("labels", name)
    return "; ".join(map(str, told)) if isinstance(told, tuple) else name


LEAST, MOST = 20, 40  # predictions a point, and points: single deltas bring a few labels each


def history_chart(history: History, status: Status) -> str:
    """Return how good predictions were before their labels came, as SVG; nothing before the first.

    Numbers have errors of any size, which such a chart does not show.
    """
    if not history["curve"] or status.metric == "mean absolute error":
        return ""
    name = f"{status.metric} of predictions before their labels came"
    return line_chart({status.metric: joined(history["curve"])}, x="deltas", y=name)


def joined(curve: Sequence[Point]) -> list[tuple[int, float]]:
    """Return the share that was right, and after which delta, of stretches that tell something.

    What is left at the end is too little for a point, unless it is all there is.

    >>> few = Point(seq=1, nodes=9, classes=2, asked=12, right=9)
    >>> joined([few, few | {"seq": 2}, few | {"seq": 3}]), joined([few])
    ([(2, 0.75)], [(1, 0.75)])
    """
    least = max(LEAST, sum(point["asked"] for point in curve) / MOST)
    points: list[tuple[int, float]] = []
    asked = right = 0.0
    for point in curve:
        asked, right = asked + point["asked"], right + point["right"]
        if asked >= least:
            points.append((point["seq"], right / asked))
            asked = right = 0.0
    return points or [(curve[-1]["seq"], right / asked)]
