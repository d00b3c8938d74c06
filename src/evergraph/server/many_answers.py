"""Predictions of many nodes: computed and told some at a time, all as of one delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from torch import Tensor

from evergraph.online.delta import NodeId
from evergraph.online.identifiers import check_id
from evergraph.online.page import Scored
from evergraph.online.pinned import Pinned
from evergraph.online.view import LearnerView
from evergraph.server.predicting import as_json
from evergraph.server.schema import told

ROWS = 1_024  # nodes that are looked up, and scored, at once
NUMBERS = 1 << 14  # probabilities that are told at once
TRIES = 3  # to find all nodes between two deltas without holding others up


class ManyAnswers:
    """Predictions of many nodes in steps that each take some milliseconds.

    First all is computed, from one page, whose vectors are held on to meanwhile. What is kept of it
    is a number for each probability; text is made when it can be sent.

    Args:
        view: of the learner.
        ids: of the nodes.
        every_class: whether the probabilities of all classes are told.
    """

    def __init__(self, view: LearnerView, ids: Sequence[NodeId], *, every_class: bool) -> None:
        self.view = view
        self.ids = ids
        self.every_class = every_class
        self._held = ExitStack()
        self._pinned: Pinned | None = None
        self._positions: list[Tensor] = []
        self._scored: list[Scored] = []

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield what is to be called, one after the other, for all to be computed."""
        tries = 0
        while sum(map(len, self._positions)) < len(self.ids) or self._pinned is None:
            tries += 1
            if tries > TRIES:
                yield self._find_all
            else:
                yield self._pin
                yield from (partial(self._find, part) for part in self._some())
        for positions in self._positions:
            yield partial(self._score, positions)
        self._held.close()

    def _some(self) -> Iterator[Sequence[NodeId]]:
        return (self.ids[start : start + ROWS] for start in range(0, len(self.ids), ROWS))

    def _pin(self) -> None:
        self._held.close()
        self._positions.clear()
        self._pinned = self._held.enter_context(self.view.pinned())

    def _find(self, ids: Sequence[NodeId]) -> None:
        """Look nodes up, unless another delta has come: they may be elsewhere then."""
        assert self._pinned is not None
        for value in ids:
            check_id("id of a node", value)
        found = self.view.where(ids, self._pinned.page)
        if found is not None:
            self._positions.append(found)

    def _find_all(self) -> None:
        self._held.close()
        self._pinned = self._held.enter_context(self.view.pinned(self.ids))
        self._positions[:] = self._pinned.positions.split(ROWS)

    def _score(self, positions: Tensor) -> None:
        assert self._pinned is not None
        vectors = self._pinned.vectors(positions)
        page = self._pinned.page
        self._scored.append(Scored.of(page, positions, vectors, every=self.every_class))

    def parts(self) -> Iterator[Callable[[], bytes]]:
        """Yield what is to be called, one after the other, for the parts of one JSON document."""
        assert self._pinned is not None
        page = self._pinned.page
        yield partial(_head, page.status.seq)
        rows = max(NUMBERS // max(len(page.classes) if self.every_class else 1, 16), 1)
        start = 0
        while self._scored:
            scored = self._scored.pop(0)  # what is told is not kept
            count = len(scored)
            for first in range(0, count, rows):
                ids = self.ids[start + first : start + min(first + rows, count)]
                yield partial(_rows, scored.part(first, rows), ids, start + first > 0)
            start += count
        classes = page.classes if self.every_class else None
        yield partial(_tail, classes)

    def close(self) -> None:
        """Let go of what is held."""
        self._held.close()


def _head(seq: int) -> bytes:
    return b'{"seq":%d,"predictions":[' % seq


def _rows(scored: Scored, ids: Sequence[NodeId], more: bool) -> bytes:
    """Return predictions as items of a list; more: whether others come before them."""
    listed = as_json(told(scored.told(ids).predictions))[1:-1]
    return b"," + listed if more else listed


def _tail(classes: Sequence[str | int] | None) -> bytes:
    return b"]}" if classes is None else b'],"classes":' + as_json(list(classes)) + b"}"
