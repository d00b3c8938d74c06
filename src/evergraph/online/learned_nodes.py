"""What is known of nodes beside the graph: their classes, and what vectors they were counted as.

And when scores follow what was counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.graph.growing_array import FormerRows, FrozenRows, GrowingArray

ROWS = 1024  # compared at a time: they stay near the processor
TINY = 1e-30  # squares of lengths below it have lost digits, and are not to be compared
SMALL = 1024  # labelled nodes: with fewer, scores follow every change
SHARE = 1 / 16  # of what is known; when more has been counted, scores follow


class NodeLabels:
    """The class of every position, ``UNLABELLED`` (-1) where it is not known.

    Attributes:
        counts_: how many nodes each class has.  int64 [classes]

    >>> labels = NodeLabels()
    >>> labels.extend(3)
    >>> labels.put(torch.tensor([2, 0]), torch.tensor([1, 1]))
    >>> labels.of(torch.tensor([0, 1, 2])), labels.counts_
    (tensor([ 1, -1,  1]), tensor([0, 2]))
    """

    def __init__(self) -> None:
        self._numbers = GrowingArray(dtype=np.int64)
        self._former = FormerRows()
        self.counts_ = torch.zeros(0, dtype=torch.int64)

    def extend(self, nodes: int) -> None:
        """Add nodes whose class is not known."""
        self._numbers.extend(nodes)
        self._numbers.array[len(self._numbers) - nodes :] = UNLABELLED

    def moves(self, nodes: int) -> bool:
        """Whether so many more nodes need other room than there is."""
        return self._numbers.moves(nodes) > 0

    def of(self, positions: Tensor) -> Tensor:
        """Return the classes of some nodes.  int64 [n] -> int64 [n]"""
        return self._numbers.tensor[positions]

    @property
    def every(self) -> Tensor:
        """The classes of all positions.  int64 [positions], a view until there are more"""
        return self._numbers.tensor

    def frozen(self) -> FrozenRows:
        """Return the classes as they are now, for those who read them while they change."""
        return FrozenRows(self._numbers, self._former.now, len(self._numbers))

    def put(self, positions: Tensor, labels: Tensor) -> None:
        """Set the classes of some nodes, each named once; ``UNLABELLED`` takes one away."""
        if not len(positions):
            return
        old = self.of(positions)
        width = max(len(self.counts_), int(labels.max()) + 1)
        more, fewer = (
            torch.bincount(part[part != UNLABELLED], minlength=width) for part in (labels, old)
        )
        known = torch.zeros(width, dtype=torch.int64)
        known[: len(self.counts_)] = self.counts_
        self.counts_ = known + more - fewer
        self._former.note(positions.numpy(), old.numpy())
        self._numbers.tensor[positions] = labels

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._numbers

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {"numbers": self._numbers.state(), "counts": self.counts_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._numbers.restore(state["numbers"])
        self.counts_ = state["counts"]


@dataclass(frozen=True, eq=False)
class Moved:
    """Nodes that are to be counted again.

    Attributes:
        places: which of the nodes asked about, ascending.  int64 [k]
        before: what they are counted as.  float32 [k, dims]
        after: what they are to be counted as.  float32 [k, dims]
    """

    places: Tensor
    before: Tensor
    after: Tensor


class Counted:
    """What a head was told that the vectors of its nodes are.

    A node is counted again where a part of its vector has moved by more than ``tolerance`` times
    its length since it was last counted: ‖now_b - counted_b‖ > τ ‖counted_b‖. Parts that have moved
    less stay as they were counted. As the very vector that was counted is kept, it can be counted
    out again whatever has become of the node since. With τ = 0 every part that is not the same is
    counted again.

    Every counted node has a row here, others have none. ``mark`` remembers nodes that have lost
    neighbours: what they are counted as may hold something of nodes that they no longer see, which
    must go when one of these is forgotten.

    Args:
        parts: how wide the parts of a vector are that move by themselves.
        tolerance: τ.

    >>> counted = Counted([1, 1], tolerance=0.1)
    >>> counted.put(torch.tensor([3]), torch.tensor([[1., 2.]]))
    >>> moved = counted.moved(torch.tensor([3]), torch.tensor([[1.05, 3.]]))
    >>> moved.before, moved.after  # the first part has hardly moved
    (tensor([[1., 2.]]), tensor([[1., 3.]]))
    """

    def __init__(self, parts: Sequence[int], *, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance
        self._parts = tuple(parts)
        self._starts = [0, *accumulate(parts)][:-1]
        self._slots = GrowingArray(dtype=np.int64)  # by position, from 1 on; 0: not counted
        self._rows = GrowingArray(sum(parts))
        self._reaches = GrowingArray(len(parts))  # by slot: τ² ‖counted_b‖², -1 where too small
        self._marks = GrowingArray(dtype=np.bool_)  # by slot
        self._free = np.empty(0, np.int64)  # slots that were given back; the last is taken first

    @property
    def nbytes(self) -> int:
        """How many bytes rows and slots take."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are kept."""
        yield from (self._slots, self._rows, self._reaches, self._marks)

    def of(self, nodes: Tensor) -> Tensor:
        """Return what counted nodes were counted as.  int64 [n] -> float32 [n, dims]"""
        return torch.from_numpy(self._rows.array[self._slots.array[nodes.numpy()] - 1])

    def put(self, nodes: Tensor, vectors: Tensor) -> None:
        """Keep what nodes are counted as from now on.  int64 [n], each once; float32 [n, dims]"""
        if len(nodes):
            self._slots.extend(max(int(nodes.max()) + 1 - len(self._slots), 0))
            positions = nodes.numpy()
            fresh = positions[self._slots.array[positions] == 0]
            self._slots.array[fresh] = self._taken(len(fresh)) + 1
            slots = self._slots.array[positions] - 1
            self._rows.array[slots] = vectors.numpy()
            self._reaches.array[slots] = self._reach(vectors.numpy())

    def _reach(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the squares of how far parts may move.  [n, dims] -> [n, parts]"""
        lengths = np.add.reduceat(rows * rows, self._starts, axis=1)
        return np.where(lengths < TINY, -1.0, self.tolerance**2 * lengths)

    def _taken(self, count: int) -> NDArray[np.int64]:
        """Return slots that nobody has."""
        known = min(count, len(self._free))
        self._free, reused = np.split(self._free, [len(self._free) - known])
        start = len(self._rows)
        for array in (self._rows, self._reaches, self._marks):
            array.extend(count - known)
        return np.concatenate([reused, np.arange(start, len(self._rows))])

    def drop(self, nodes: Tensor) -> None:
        """Let go of nodes that are counted no more."""
        slots = self._slots.array[nodes.numpy()] - 1
        self._rows.array[slots] = 0
        self._marks.array[slots] = False
        self._slots.array[nodes.numpy()] = 0
        self._free = np.concatenate([self._free, slots])

    def mark(self, nodes: Tensor) -> None:
        """Remember counted nodes that have lost neighbours, if they may be others by now."""
        if self.tolerance:
            self._marks.array[self._slots.array[nodes.numpy()] - 1] = True

    def unmarked(self) -> Tensor:
        """Return the nodes that are marked, which they no longer are then.  int64 [n], ascending"""
        positions = np.flatnonzero(self._slots.array)
        found = positions[self._marks.array[self._slots.array[positions] - 1]]
        self._marks.array[:] = False
        return torch.from_numpy(found)

    def moved(
        self,
        nodes: Tensor,
        vectors: Tensor,
        *,
        among: Tensor | None = None,
        exactly: bool = False,
    ) -> Moved:
        """Return which nodes are to be counted again.  int64 [n], float32 [n, dims]

        among: which of them are counted, all unless given, bool [n]; exactly: all that are not the
        same, as if τ were 0.
        """
        asked = np.arange(len(nodes)) if among is None else np.flatnonzero(among.numpy())
        now, positions = vectors.numpy(), nodes.numpy()
        places, before, after = [asked[:0]], [now[:0]], [now[:0]]
        for rows in np.split(asked, range(ROWS, len(asked), ROWS)):
            slots, here = self._slots.array[positions[rows]] - 1, now.take(rows, axis=0)
            was = self._rows.array.take(slots, axis=0)
            far = self._far(slots, was, here, exactly or not self.tolerance)
            some = far.any(1)
            places.append(rows[some])
            before.append(was[some])
            which = np.repeat(far[some], self._parts, axis=1)
            after.append(np.where(which, here[some], was[some]))
        found = (torch.from_numpy(np.concatenate(part)) for part in (places, before, after))
        return Moved(*found)

    def _far(
        self, slots: NDArray[np.int64], was: NDArray[Any], now: NDArray[Any], exactly: bool
    ) -> NDArray[np.bool_]:
        """Return which parts of which rows have moved too far.  -> bool [rows, parts]"""
        far = np.ones((len(slots), len(self._parts)), np.bool_)
        if not exactly:
            gaps = now - was
            gaps *= gaps
            far = ~(np.add.reduceat(gaps, self._starts, axis=1) <= self._reaches.array[slots])
        some = far.any(1)
        differs = np.logical_or.reduceat(was[some] != now[some], self._starts, axis=1)
        far[some] &= differs  # what is too small to be squared may still be the same
        return far

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        kept = {"slots": self._slots.state(), "rows": self._rows.state()}
        kept["marks"] = self._marks.state()
        return kept | {"free": torch.from_numpy(self._free.copy())}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._slots.restore(state["slots"])
        self._rows.restore(state["rows"])
        rows = state["rows"].numpy()
        self._reaches.extend(len(rows) - len(self._reaches))
        for start in range(0, len(rows), ROWS):
            self._reaches.array[start : start + ROWS] = self._reach(rows[start : start + ROWS])
        self._marks.restore(state["marks"])
        self._free = state["free"].numpy().copy()


class Solving:
    """Decides after every change whether scores are solved now or wait for more.

    They are solved at once where that cannot wait (``urgent``: a class is new or gone, a node was
    forgotten, a label taken back, a class has enough nodes for a say in the mixture), where fewer
    than ``SMALL`` labelled nodes are known, and where what was counted since they were last solved
    passes ``SHARE`` of these; and at the latest with the change number ``patience`` since then.
    Nothing else counts, least of all the time: the same changes are solved at the same points by
    whoever applies them again.

    Args:
        patience: how many changes at most scores may be behind, the last one included; with 1 they
            never are.

    >>> solving = Solving(patience=3)
    >>> [solving.due(10, known=100_000) for _ in range(4)]
    [False, False, True, False]
    >>> solving.due(10, known=100_000, urgent=True), solving.behind
    (True, False)
    >>> solving.due(0, known=100_000), solving.behind  # nothing to wait for
    (False, False)
    """

    def __init__(self, *, patience: int) -> None:
        self.patience = patience
        self._changes = 0
        self._counted = 0

    @property
    def behind(self) -> bool:
        """Whether something was counted that scores do not know of."""
        return self._counted > 0

    def due(self, counted: int, *, known: int, urgent: bool = False) -> bool:
        """Note a change; return whether scores are to be solved with it.

        counted: how many nodes it has counted; known: how many labelled nodes there are.
        """
        self._counted += counted
        self._changes += self._counted > 0
        small = known < SMALL or self._counted > SHARE * known
        due = urgent or (self.behind and (small or self._changes >= self.patience))
        if due:
            self._counted = self._changes = 0
        return due

    def state(self) -> dict[str, Tensor]:
        """Return what is waiting."""
        return {"waiting": torch.tensor([self._changes, self._counted])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._changes, self._counted = state["waiting"].tolist()
