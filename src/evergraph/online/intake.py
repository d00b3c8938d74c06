"""Limits of a delta (``Bounds``), and batches of deltas that are applied together (``Batch``).

A delta in the journal is applied again at every recovery, so one that cannot be applied must not
get there. Its memory is estimated from counts; the estimate should be above the true value, by less
than a factor of four (``tests/online/test_bounds.py`` measures both).

Queued deltas are joined to one change of the graph, one update of embeddings and one update of the
head. A new batch begins with a delta that cannot be joined: one that removes edges, changes
features, forgets, or has relations or types, a second label of a node, or edges with weights next
to edges without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form.own_features import NO_WORDS
from evergraph.closed_form.view_map import BLOCK_VALUES as FEATURES_AT_A_TIME
from evergraph.core.errors import TooMuchError, check_integer, say_once
from evergraph.core.sizes import free_memory, shown
from evergraph.core.targets.one_class import alike
from evergraph.online.checking import CheckedDelta
from evergraph.online.delta import Delta, Label, NodeId, NodeTarget
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.heads import FusedHead
from evergraph.online.heads.fused import LEFT_OUT_NODES, LEFT_OUT_SCORES
from evergraph.online.heads.scorer import BLOCK_VALUES as VALUES_AT_A_TIME
from evergraph.online.knowledge import Knowledge
from evergraph.topology import TopologyEncoder
from evergraph.topology.cached import Scaling

UNCHECKED_BYTES = 1 << 27  # bytes up to which free memory is not checked
TEMPORARY_BYTES = 1 << 24  # temporary bytes of any delta
FREE_SHARE = 0.5  # of free memory that a delta may use, as other processes need some too
# Bytes of Python objects per id: the text, an entry of a dictionary and one of a list.
ID_BYTES = 400
EDGE_BYTES = 250  # both directions with spare capacity, and the lists they are sorted in
COPIES = 5  # of a computed vector, until the delta is done
_PAIRS_NAMED = 5  # pairs of similar classes of a delta that are named
CODE_WIDTH = 2 * 64  # width of class codes, before it is known
DEFAULT_VIEWS = 3  # before the first delta, when a head's own are not known


@dataclass(frozen=True, eq=False)
class PartsOfLearner:
    """The parts of a learner on which the memory of a delta depends."""

    head: FusedHead
    topology: TopologyEncoder
    scaling: Scaling
    knowledge: Knowledge | None  # graph and embeddings; None before the first node
    copied: int  # bytes per node in the copy that readers use


@dataclass(frozen=True)
class Bounds:
    """Limits of one delta.

    A delta beyond them is rejected before it is written to the journal. They do not apply to deltas
    that are in the journal already.

    >>> Bounds(classes=0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: classes must be an integer of at least 1, not 0
    """

    classes: int | None = 1_000  # new classes in a delta; None for any number
    # bytes that applying it may add; None for half of the free memory, see ``free_memory``, but at
    # least 128 MiB
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("classes", "memory"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least=1)

    def check(self, delta: CheckedDelta, held: PartsOfLearner) -> None:
        """Raise if a delta exceeds the limits."""
        names = new_classes(delta, held)
        new = len(names)
        if self.classes is not None and new > self.classes:
            raise TooMuchError(
                f"a delta must have at most {self.classes:,} new classes (serve --delta-classes), "
                f"not {new:,}: was a column of ids sent as labels?"
            )
        known = () if held.knowledge is None or not new else held.knowledge.names
        for sentence in islice(alike(names, known), _PAIRS_NAMED):
            say_once("labels", sentence)  # though a delta may be checked twice
        needed = estimate(delta, held, classes=new)
        if self.memory is None and needed <= UNCHECKED_BYTES:
            return
        left = int(FREE_SHARE * free_memory()) if self.memory is None else self.memory
        if needed > left:  # the close estimate takes longer, so it is second
            needed = estimate(delta, held, classes=new, closely=True)
        if needed > left:
            many = f", and check why it has {new:,} new classes" if new > 1_000 else ""
            raise TooMuchError(
                f"a delta must take at most {shown(left)} of memory now (serve --delta-memory), "
                f"not about {shown(needed)}: send it in smaller parts{many}"
            )


def new_classes(delta: CheckedDelta, held: PartsOfLearner) -> list[Label]:
    """Return the new classes, or new labels, of a delta in order; none for numbers."""
    labels = chain(delta.labels, (label for _, label in delta.late))
    called = (held.head.target.names(label) for label in labels if label is not None)
    names = dict.fromkeys(chain.from_iterable(called))
    knowledge = held.knowledge
    return [n for n in names if knowledge is None or not knowledge.names_class(n)]


def estimate(
    delta: CheckedDelta, held: PartsOfLearner, *, classes: int | None = None, closely: bool = False
) -> int:
    """Return the estimated bytes that applying a delta adds.

    classes: number of new ones, if known; closely: count the nodes that it affects, not all
    """
    new = len(new_classes(delta, held)) if classes is None else classes
    nodes, edges = len(delta.nodes), len(delta.edges) + len(delta.removed_edges)
    labelled = len(delta.late) + sum(label is not None for label in delta.labels)
    vector = rows = known = learned = affected = 0
    knowledge = held.knowledge
    if knowledge is not None:
        vector, rows = knowledge.dims, knowledge.bytes_for(nodes) + nodes * held.copied
        known, learned = len(knowledge.names), int(knowledge.labels.counts_.sum())
        affected = knowledge.graph.num_nodes
        if closely:
            ends_of_edges = [delta.ends.flatten(), delta.cut.flatten()]
            touched = torch.cat(
                [*ends_of_edges, delta.renewed, delta.labelled, delta.gone]
            ).unique()
            affected = len(knowledge.reached_by(touched[touched < affected]))
    elif nodes:  # the first ones: the learner has no widths of its own yet
        width = delta.features.shape[1] - delta.words.width
        graph = GrowingGraph(num_features=width)
        live = LiveEmbeddings(held.topology, graph, scaling=held.scaling)
        vector = live.dims + CODE_WIDTH + delta.words.width
        rows = nodes * 4 * (width * (2 + held.topology.hops) + 3 * vector)
    computed = 4 * vector * (nodes + affected)
    head = _bytes_of_head(
        held.head,
        nodes=learned + labelled,
        counted=labelled + min(affected, learned),
        classes=known + new,
        new=new,
    )
    ids = (nodes + new) * ID_BYTES
    return int(TEMPORARY_BYTES + ids + rows + edges * EDGE_BYTES + COPIES * computed + head)


def _bytes_of_head(head: FusedHead, *, nodes: int, counted: int, classes: int, new: int) -> int:
    """Return the bytes of sums, V and a_v V_v, of copies, and of a block of nodes.

    nodes: labelled ones, including those of the delta; counted: how many of these it learns or
    moves; classes: including those of the delta; new: how many of these are new.
    """
    views = max(len(head.parsed), DEFAULT_VIEWS)
    per_new_class = views * 3 * 8
    # per view a_v V_v of readers, a_v V_v and V; for one view sums, means and their products
    per_class = views * 3 * 8 + 4 * 8
    width = head.width_for(nodes)
    rows = width * (per_new_class * new + per_class * classes + 3 * 8 * width)
    if head.basis == "landmarks":  # a new set, and its kernel matrix
        dims = sum(head.engine.map.sizes.values()) if head.engine.sums_ else 0
        rows += width * (views * 2 * 4 * width + 3 * 4 * dims)
    block = min(counted * width, FEATURES_AT_A_TIME)
    # At least so many classes have a single node, which is not left out.
    singletons = max(2 * classes - nodes, 0) if head.least_left_out > 1 else 0
    left_out = min(
        min(max(nodes - singletons, 0), LEFT_OUT_NODES) * classes * views, LEFT_OUT_SCORES
    )
    total = rows + 5 * 8 * block + 3 * 8 * left_out + 8 * head.codes * new
    if not head.target.is_class:  # the values of a block of nodes
        total += 6 * 8 * min(counted * classes, VALUES_AT_A_TIME) + 4 * 8 * width * classes
    return total


MOST_DELTAS = 64
MOST_ITEMS = 4096  # nodes, edges and late labels, so that no sender waits for long


class Batch:
    """Deltas that were checked one after the other and can be applied as one."""

    def __init__(self) -> None:
        self.deltas: list[CheckedDelta] = []
        self.ahead: dict[NodeId, int] = {}  # positions of their new nodes, to check the next
        self._labelled: set[NodeId] = set()
        self._weighted: bool | None = None  # None before the first edge
        self._width: int | None = None
        self._items = 0

    @staticmethod
    def is_alone(delta: Delta) -> bool:
        """Whether a delta must always be applied by itself."""
        parts = (delta.removed_edges, delta.updated, delta.forgotten)
        return delta.refit or any(map(len, (*parts, delta.relations, delta.types)))

    @property
    def full(self) -> bool:
        """Whether no further delta can be added."""
        size = len(self.deltas) >= MOST_DELTAS or self._items >= MOST_ITEMS
        return size or (bool(self.deltas) and self.is_alone(self.deltas[-1]))

    def takes(self, delta: CheckedDelta) -> bool:
        """Whether a delta that was checked with ``ahead`` can be added; the first always can."""
        if not self.deltas:
            return True
        return not (
            self.full
            or self.is_alone(delta)
            or self._items + delta.size > MOST_ITEMS
            or not self._labelled.isdisjoint(node for node, _ in delta.late)
            or (len(delta.edges) and self._weighted not in (None, bool(len(delta.weights))))
            or (len(delta.nodes) and self._width not in (None, delta.features.shape[1]))
        )

    def add(self, delta: CheckedDelta) -> None:
        """Add a delta for which ``takes`` is true."""
        self.deltas.append(delta)
        self.ahead.update((node, delta.first + index) for index, node in enumerate(delta.nodes))
        labels = zip(delta.nodes, labels_of(delta), strict=True)
        self._labelled.update(node for node, label in labels if label is not None)
        self._labelled.update(node for node, _ in delta.late)
        if len(delta.edges):
            self._weighted = bool(len(delta.weights))
        if len(delta.nodes):
            self._width = delta.features.shape[1]
        self._items += delta.size


def merged(deltas: Sequence[CheckedDelta]) -> CheckedDelta:
    """Return the deltas of a batch as one, without a key; a single one unchanged."""
    if len(deltas) == 1:
        return deltas[0]
    weighed = [delta.weighed for delta in deltas if delta.weighed is not None]
    features = [delta.features for delta in deltas if len(delta.nodes)]
    lists: dict[str, Any] = {name: [] for name in ("nodes", "edges", "weights", "late", "labels")}
    for delta in deltas:
        for name, items in lists.items():
            items.extend(labels_of(delta) if name == "labels" else getattr(delta, name))
    return replace(
        deltas[0],
        **lists,
        features=torch.cat(features) if features else torch.zeros(0, 0),
        words=next((delta.words for delta in deltas if len(delta.nodes)), NO_WORDS),
        ends=torch.cat([delta.ends for delta in deltas], dim=1),
        weighed=torch.cat(weighed) if weighed else None,
        labelled=torch.cat([delta.labelled for delta in deltas]),
        key=None,
    )


def owners(deltas: Sequence[CheckedDelta]) -> Tensor:
    """Return the index of the delta that each label of ``merged`` is of.  -> int64 [labels]"""
    new = [sum(label is not None for label in labels_of(delta)) for delta in deltas]
    late = [len(delta.late) for delta in deltas]
    indices = torch.arange(len(deltas))
    return torch.cat([indices.repeat_interleave(torch.tensor(counts)) for counts in (new, late)])


def labels_of(delta: Delta) -> Sequence[NodeTarget | None]:
    """Return the labels of a delta's new nodes, all None if none are given."""
    return delta.labels if len(delta.labels) else (None,) * len(delta.nodes)
