"""What is taken in at once: how much one delta may ask for, and which deltas become one change.

A delta that is in the journal is applied by whoever opens the folder, so what cannot be applied
must not get there. The work is estimated from counts: nodes, edges and classes that are new, how
wide a row of the learner is, what its head keeps for a class. The estimate is meant to be above
what it takes, by less than four times (``tests/online/test_bounds.py`` measures both).

Deltas that wait are laid one behind the other (``Batch``): one change of the graph, one update of
embeddings, one time the head is told. Labels are all predicted before any of them is learned. What
cannot be laid together begins a batch of its own: a delta that removes edges, changes features,
forgets, or brings relations or types, a second label of a node, and edges with weights beside edges
without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import TooMuchError
from evergraph.core.sizes import free_memory, shown
from evergraph.online.array_storage import ARRAY_SHARE, ArrayStorage
from evergraph.online.checking import CheckedDelta
from evergraph.online.delta import Delta, NodeId, Told
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.heads import OnlineHead
from evergraph.online.knowledge import Knowledge
from evergraph.topology import TopologyEncoder
from evergraph.topology.cached import Scaling

SMALL = 1 << 27  # bytes that are not worth asking the system for
LEAST = 1 << 24  # bytes that come and go with any delta
FREE_SHARE = 0.5  # of what is free: others take some of it meanwhile
# Bytes of Python's own for an id: the text, an entry of a table and one of a list.
ID_BYTES = 400
EDGE_BYTES = 250  # both directions, with room to grow, and the lists they are sorted in
COPIES = 5  # of a vector that is computed anew, until all is done
NARROW_BYTES = 200  # of a node, in what stays in memory where memory is limited
CODES = 2 * 64  # how wide class codes are, where it is not known yet


@dataclass(frozen=True, eq=False)
class Held:
    """What a learner holds, as far as the work of a delta depends on it.

    Attributes:
        head: what learns.
        topology, scaling: of embeddings.
        knowledge: graph and embeddings; None before the first node.
        storage: where what is wide lies where memory is limited; None if in memory.
        copied: bytes of memory that a node takes in what readers see.
    """

    head: OnlineHead
    topology: TopologyEncoder
    scaling: Scaling
    knowledge: Knowledge | None
    storage: ArrayStorage | None
    copied: int


@dataclass(frozen=True)
class Bounds:
    """What one delta may ask for.

    What is beyond is refused before it is written down. A bound is for what is new: it never
    applies to deltas that a journal holds, since what was taken in stays taken in.

    Attributes:
        classes: new classes that a delta may bring; None: any number.
        memory: bytes that applying it may add; None: half of what is free, see ``free_memory``, or
            128 MiB where that is less.

    >>> Bounds(classes=0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: classes must be an integer of at least 1, not 0
    """

    classes: int | None = 1_000
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("classes", "memory"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least=1)

    def check(self, delta: CheckedDelta, held: Held) -> None:
        """Raise if a delta asks for more."""
        new = new_classes(delta, held)
        if self.classes is not None and new > self.classes:
            raise TooMuchError(
                f"a delta may bring at most {self.classes:,} new classes (serve --delta-classes), "
                f"and this one brings {new:,}: was a column of ids sent as labels?"
            )
        needed = estimate(delta, held, classes=new)
        if self.memory is None and needed <= SMALL:
            return
        left = int(FREE_SHARE * free_memory()) if self.memory is None else self.memory
        if needed > left:  # a closer look takes longer
            needed = estimate(delta, held, classes=new, closely=True)
        if needed > left:
            advice = "send it in smaller parts"
            if new > 1_000:
                advice += f", and see why it brings {new:,} new classes"
            raise TooMuchError(
                f"learning a delta may take at most {shown(left)} of memory now (serve "
                f"--delta-memory), and this one would take about {shown(needed)}: {advice}"
            )


def new_classes(delta: CheckedDelta, held: Held) -> int:
    """Return how many classes, or labels where nodes have several, a delta brings.

    Numbers are no classes, however many there are.
    """
    kind = held.head.kind
    if kind == "numbers":
        return 0
    told: Iterable[Any] = chain(delta.labels, (label for _, label in delta.late))
    told = (label for label in told if label is not None)
    if kind == "labels":
        told = chain.from_iterable(told)
    names = set(told)
    knowledge = held.knowledge
    return len(names) if knowledge is None else sum(not knowledge.names_class(n) for n in names)


def estimate(
    delta: CheckedDelta, held: Held, *, classes: int | None = None, closely: bool = False
) -> int:
    """Return how many bytes applying a delta takes beside what is held already.

    classes: how many are new, where it is known; closely: count the nodes that the delta reaches,
    where otherwise they are taken to be all.
    """
    new = new_classes(delta, held) if classes is None else classes
    nodes, edges = len(delta.nodes), len(delta.edges) + len(delta.removed_edges)
    told = len(delta.late) + sum(label is not None for label in delta.labels)
    known = learned = there = 0
    knowledge = held.knowledge
    if knowledge is None:
        vector, row = _first_widths(delta, held)
        rows = nodes * row
    else:
        vector, rows = knowledge.dims, knowledge.bytes_for(nodes) + nodes * held.copied
        known, learned = len(knowledge.names), int(knowledge.labels.counts_.sum())
        there = _reached(delta, knowledge) if closely else knowledge.graph.num_nodes
    computed = 4 * vector * (nodes + there)
    if held.storage is not None:  # files hold most of it
        computed = min(computed, int(ARRAY_SHARE * held.storage.limit))
    head = held.head.bytes_for(
        nodes=learned + told, counted=told + min(there, learned), classes=known + new, new=new
    )
    ids = (nodes + new) * ID_BYTES
    return int(LEAST + ids + rows + edges * EDGE_BYTES + COPIES * computed + head)


def _first_widths(delta: CheckedDelta, held: Held) -> tuple[int, int]:
    """Return how many values a vector has before there are any, and how many bytes a node takes."""
    if not len(delta.nodes):
        return 0, 0
    width = delta.features.shape[1]
    live = LiveEmbeddings(held.topology, num_features=width, scaling=held.scaling)
    vector = live.dims + (CODES if held.head.holds_back else 0)
    if held.storage is not None:
        return vector, NARROW_BYTES
    return vector, 4 * (width * (2 + held.topology.hops) + 3 * vector)


def _reached(delta: CheckedDelta, knowledge: Knowledge) -> int:
    """Return how many known nodes feel a delta."""
    parts = [delta.ends.flatten(), delta.cut.flatten(), delta.renewed, delta.told, delta.gone]
    ends = torch.cat(parts).unique()
    return len(knowledge.reached_by(ends[ends < knowledge.graph.num_nodes]))


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
