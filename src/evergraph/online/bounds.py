"""What one delta may ask for: known before it is written down, so that it can be refused.

A delta that is in the journal is applied by whoever opens the folder, so what cannot be applied
must not get there. The work is estimated from counts: nodes, edges and classes that are new, how
wide a row of the learner is, what its head keeps for a class. The estimate is meant to be above
what it takes, by less than four times (``tests/online/test_bounds.py`` measures both).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from evergraph.core.checks import check_integer
from evergraph.core.errors import TooMuchError
from evergraph.core.sizes import free_memory, shown
from evergraph.online.graph.array_storage import ARRAY_SHARE
from evergraph.online.graph.live_embeddings import LiveEmbeddings

if TYPE_CHECKING:
    from evergraph.online.checking import CheckedDelta
    from evergraph.online.learner import OnlineLearner

SMALL = 1 << 27  # bytes that are not worth asking the system for
LEAST = 1 << 24  # bytes that come and go with any delta
FREE_SHARE = 0.5  # of what is free: others take some of it meanwhile
# Bytes of Python's own for an id: the text, an entry of a table and one of a list.
ID_BYTES = 400
EDGE_BYTES = 250  # both directions, with room to grow, and the lists they are sorted in
COPIES = 5  # of a vector that is computed anew, until all is done
NARROW_BYTES = 200  # of a node, in what stays in memory where memory is limited
CODES = 2 * 64  # how wide class codes are, where it is not known yet


@dataclass(frozen=True)
class Work:
    """What applying a delta takes, as far as can be told before.

    Attributes:
        memory: bytes that are held beside what is held already.
        classes: classes that are new, or labels where nodes have several.
    """

    memory: int
    classes: int


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

    def check(self, delta: CheckedDelta, learner: OnlineLearner) -> None:
        """Raise if a delta asks for more."""
        new = new_classes(delta, learner)
        if self.classes is not None and new > self.classes:
            raise TooMuchError(
                f"a delta may bring at most {self.classes:,} new classes (serve --delta-classes), "
                f"and this one brings {new:,}: was a column of ids sent as labels?"
            )
        needed = estimate(delta, learner, classes=new).memory
        if self.memory is None and needed <= SMALL:
            return
        left = self._left()
        if needed > left:  # a closer look takes longer
            needed = estimate(delta, learner, classes=new, closely=True).memory
        if needed > left:
            raise TooMuchError(_sentence(needed, left, new))

    def _left(self) -> int:
        return int(FREE_SHARE * free_memory()) if self.memory is None else self.memory


def _sentence(needed: int, left: int, new: int) -> str:
    advice = "send it in smaller parts"
    if new > 1_000:
        advice += f", and see why it brings {new:,} new classes"
    return (
        f"learning a delta may take at most {shown(left)} of memory now (serve --delta-memory), "
        f"and this one would take about {shown(needed)}: {advice}"
    )


def new_classes(delta: CheckedDelta, learner: OnlineLearner) -> int:
    """Return how many classes, or labels where nodes have several, a delta brings.

    Numbers are no classes, however many there are.
    """
    kind = learner.head.kind
    if kind == "numbers":
        return 0
    told: Iterable[Any] = chain(delta.labels, (label for _, label in delta.late))
    told = (label for label in told if label is not None)
    if kind == "labels":
        told = chain.from_iterable(told)
    names = set(told)
    knowledge = learner.knowledge
    return len(names) if knowledge is None else sum(not knowledge.names_class(n) for n in names)


def estimate(
    delta: CheckedDelta,
    learner: OnlineLearner,
    *,
    classes: int | None = None,
    closely: bool = False,
) -> Work:
    """Return what applying a delta takes.

    classes: how many are new, where it is known; closely: count the nodes that the delta reaches,
    where otherwise they are taken to be all.
    """
    new = new_classes(delta, learner) if classes is None else classes
    nodes, edges = len(delta.nodes), len(delta.edges) + len(delta.removed_edges)
    told = len(delta.late) + sum(label is not None for label in delta.labels)
    known = learned = there = grown = 0
    knowledge = learner.knowledge
    if knowledge is None:
        vector, row = _first_widths(delta, learner)
    else:
        vector, row = knowledge.dims, knowledge.row_bytes + learner.copied_bytes
        grown = max((array.moves(nodes) for array in knowledge.arrays()), default=0)
        known, learned = len(knowledge.names), int(knowledge.labels.counts_.sum())
        there = _reached(delta, learner) if closely else knowledge.graph.num_nodes
    memory = LEAST + nodes * (row + ID_BYTES) + edges * EDGE_BYTES + grown + new * ID_BYTES
    memory += _computed(vector * (nodes + there), learner)
    memory += learner.head.bytes_for(
        nodes=learned + told, counted=told + min(there, learned), classes=known + new, new=new
    )
    return Work(int(memory), new)


def _computed(values: int, learner: OnlineLearner) -> int:
    """Return what vectors that are computed anew take; where memory is limited files hold most."""
    if learner.storage is None:
        return COPIES * 4 * values
    return int(COPIES * min(4 * values, ARRAY_SHARE * learner.storage.limit))


def _first_widths(delta: CheckedDelta, learner: OnlineLearner) -> tuple[int, int]:
    """Return how many values a vector has before there are any, and how many bytes a node takes."""
    if not len(delta.nodes):
        return 0, 0
    width = delta.features.shape[1]
    live = LiveEmbeddings(learner.topology, num_features=width, scaling=learner.scaling)
    vector = live.dims + (CODES if learner.head.holds_back else 0)
    if learner.storage is not None:
        return vector, NARROW_BYTES
    return vector, 4 * (width * (2 + learner.topology.hops) + 3 * vector)


def _reached(delta: CheckedDelta, learner: OnlineLearner) -> int:
    """Return how many known nodes feel a delta."""
    knowledge = learner.knowledge
    assert knowledge is not None
    parts = [delta.ends.flatten(), delta.cut.flatten(), delta.renewed, delta.told, delta.gone]
    ends = torch.cat(parts).unique()
    return len(knowledge.reached_by(ends[ends < knowledge.graph.num_nodes]))
