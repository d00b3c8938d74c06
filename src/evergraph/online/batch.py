"""Deltas that are taken in together, as one change.

Their nodes, edges and labels are laid one behind the other: one change of the graph, one update of
embeddings, one time the head is told. Labels are all predicted before any of them is learned. What
cannot be laid together begins a batch of its own: a delta that removes edges, changes features,
forgets, or brings relations or types, a second label of a node, and edges with weights beside edges
without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from evergraph.online.checking import CheckedDelta
from evergraph.online.delta import Delta, NodeId, Told

T = TypeVar("T")
MOST_DELTAS = 64
MOST_ITEMS = 4096  # nodes, edges and late labels: so that no answer waits for long


class Batch:
    """Deltas that were checked one after the other and can be applied as one.

    Attributes:
        deltas: these.
        ahead: the nodes that come with them, and their positions; ``check`` wants them for the
            next.

    >>> batch = Batch()
    >>> batch.is_alone(Delta(forgotten=("a",))), batch.is_alone(Delta(late=(("a", "x"),)))
    (True, False)
    """

    def __init__(self) -> None:
        self.deltas: list[CheckedDelta] = []
        self.ahead: dict[NodeId, int] = {}
        self._labelled: set[NodeId] = set()
        self._weighted: bool | None = None  # None before the first edge
        self._width: int | None = None
        self._items = 0

    @staticmethod
    def is_alone(delta: Delta) -> bool:
        """Whether a delta is applied by itself, whatever the others are."""
        parts = (delta.removed_edges, delta.updated, delta.forgotten)
        return any(map(len, (*parts, delta.relations, delta.types)))

    @property
    def full(self) -> bool:
        """Whether nothing may be added any more."""
        size = len(self.deltas) >= MOST_DELTAS or self._items >= MOST_ITEMS
        return size or (bool(self.deltas) and self.is_alone(self.deltas[-1]))

    def takes(self, delta: CheckedDelta) -> bool:
        """Whether a delta that was checked with ``ahead`` can be added; the first always can."""
        if not self.deltas:
            return True
        return not (
            self.full
            or self.is_alone(delta)
            or self._items + _items(delta) > MOST_ITEMS
            or not self._labelled.isdisjoint(node for node, _ in delta.late)
            or (len(delta.edges) and self._weighted not in (None, bool(len(delta.weights))))
            or (len(delta.nodes) and self._width not in (None, delta.features.shape[1]))
        )

    def add(self, delta: CheckedDelta) -> None:
        """Add a delta that can be."""
        self.deltas.append(delta)
        self.ahead.update((node, delta.first + place) for place, node in enumerate(delta.nodes))
        told = zip(delta.nodes, labels_of(delta), strict=True)
        self._labelled.update(node for node, label in told if label is not None)
        self._labelled.update(node for node, _ in delta.late)
        if len(delta.edges):
            self._weighted = bool(len(delta.weights))
        if len(delta.nodes):
            self._width = delta.features.shape[1]
        self._items += _items(delta)


def merged(deltas: Sequence[CheckedDelta]) -> CheckedDelta:
    """Return the deltas of a batch as one, without a key; a single one as it is."""
    if len(deltas) == 1:
        return deltas[0]
    weighed = [delta.weighed for delta in deltas if delta.weighed is not None]
    return replace(
        deltas[0],
        nodes=_joined(delta.nodes for delta in deltas),
        features=_rows([delta.features for delta in deltas if len(delta.nodes)]),
        labels=_joined(labels_of(delta) for delta in deltas),
        edges=_joined(delta.edges for delta in deltas),
        weights=_joined(delta.weights for delta in deltas),
        late=_joined(delta.late for delta in deltas),
        ends=torch.cat([delta.ends for delta in deltas], dim=1),
        weighed=torch.cat(weighed) if weighed else None,
        told=torch.cat([delta.told for delta in deltas]),
        key=None,
    )


def owners(deltas: Sequence[CheckedDelta]) -> Tensor:
    """Return which delta of a batch each label comes with.

    In the order of ``merged``: labels of new nodes, then late ones.  -> int64 [labels]
    """
    new = [sum(label is not None for label in labels_of(delta)) for delta in deltas]
    late = [len(delta.late) for delta in deltas]
    places = torch.arange(len(deltas))
    return torch.cat([places.repeat_interleave(torch.tensor(counts)) for counts in (new, late)])


def labels_of(delta: Delta) -> Sequence[Told | None]:
    """Return the labels of a delta's new nodes, None for each where none are given."""
    return delta.labels if len(delta.labels) else (None,) * len(delta.nodes)


def _items(delta: Delta) -> int:
    return len(delta.nodes) + len(delta.edges) + len(delta.late)


def _joined(parts: Iterator[Sequence[T]]) -> list[T]:
    return list(chain.from_iterable(parts))


def _rows(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, 0)
