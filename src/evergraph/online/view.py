"""What readers see of a learner while it learns: predictions, look-ups and how it is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import DataError
from evergraph.online.alarms import Alarm
from evergraph.online.delta import Label, NodeId
from evergraph.online.explanation import Explanation, explain
from evergraph.online.graph.array_storage import ArrayStorage
from evergraph.online.graph.growing_array import FormerRows, FrozenRows, GrowingArray
from evergraph.online.graph.hop_states import ROWS
from evergraph.online.identifiers import IdTable, check_id
from evergraph.online.neighbourhood import Neighbourhood, neighbourhood
from evergraph.online.page import (
    FEW,
    NEWEST,
    Answer,
    History,
    LabelsPrediction,
    NumberPrediction,
    Page,
    Prediction,
    Scored,
    Status,
    told_classes,
)
from evergraph.online.pinned import Pinned
from evergraph.online.prequential import Prequential
from evergraph.online.suggestions import Suggestion, suggest

__all__ = [
    "FEW",
    "Answer",
    "History",
    "LabelsPrediction",
    "LearnerView",
    "NumberPrediction",
    "Page",
    "Prediction",
    "Status",
]


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
        self._former = FormerRows()  # of the copy, noted while somebody reads it without the lock
        self._pins = 0

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
        """The alarm that predictions are worse than they were, while they are."""
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
            return told_classes(
                page, ids, all_shares.argmax(1).tolist(), all_shares.max(1).tolist(), every
            )
        return Scored.of(*self.taken(ids), every=every_class).told(ids)

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

    @contextmanager
    def pinned(self, ids: Sequence[NodeId] = ()) -> Iterator[Pinned]:
        """Give what is published, and where nodes are in it, to be read for as long as it takes.

        Deltas come meanwhile, and neither waits for the other. Nothing of them is seen.
        """
        with self._lock:
            page = self._page
            for node in ids:
                if node not in self._ids:
                    raise self._ids.unknown(node)
            positions = self._ids.positions(ids)
            copied = self._copied
            rows = None if copied is None else FrozenRows(copied, self._former.now, len(copied))
            pinned = Pinned(page, positions, rows, self._ids, self._ids.gone)
            self._pins += 1
        try:
            yield pinned
        finally:
            with self._lock:
                self._pins -= 1

    def where(self, ids: Sequence[NodeId], page: Page) -> Tensor | None:
        """Return where nodes are, None where a page is no longer the last.  -> int64 [ids]"""
        with self._lock:
            return self._ids.positions(ids) if page is self._page else None

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

    def suggest(
        self, n: int, *, among: Sequence[NodeId] | None = None
    ) -> tuple[int, tuple[Suggestion, ...]]:
        """Return after which delta, and unlabelled nodes worth asking a person about.

        n: how many at most; among: which nodes may be asked about, all unless given.
        """
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
            classes = self._page.classes if self._page.kind == "class" else ()
            newest = range(max(len(classes) - NEWEST, 0), len(classes))
            return {
                "curve": self._prequential.curve(),
                "newest": [classes[number] for number in newest],
                "confusion": [list(row) for row in self._prequential.confusion(newest).counts],
            }
