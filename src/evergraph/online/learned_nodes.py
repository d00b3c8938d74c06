"""State of labelled nodes: their classes, the vectors they are counted as, when to solve again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.graphs.kernels.row_ranges import in_parts
from evergraph.online.graph.growing_array import FrozenRows, GrowingArray, KeptArrays, StoredPart
from evergraph.online.pieces import Pieces

ROWS = 1024  # compared at a time, so that they stay in the processor's cache
TINY = 1e-30  # squared lengths below it have lost digits and cannot be compared
SMALL = 1024  # with fewer labelled nodes, scores are solved after every change
NEARER = 0.99  # share of the limit below which roundings cannot make a difference
SHARE = 1 / 16  # of the labelled nodes; once more have changed, scores are solved


class NodeLabels(KeptArrays):
    """The class of every position, ``UNLABELLED`` (-1) for none.

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
        self.kept = {"numbers": self._numbers}
        self.counts_ = torch.zeros(0, dtype=torch.int64)

    def extend(self, nodes: int) -> None:
        """Add unlabelled nodes."""
        self._numbers.extend(nodes)
        self._numbers.array[len(self._numbers) - nodes :] = UNLABELLED

    def of(self, positions: Tensor) -> Tensor:
        """Return the classes of some nodes.  int64 [n] -> int64 [n]"""
        return self._numbers.tensor[positions]

    @property
    def every(self) -> Tensor:
        """The classes of all positions.  int64 [positions], a view until there are more"""
        return self._numbers.tensor

    def frozen(self) -> FrozenRows:
        """Return the current classes, readable while they change."""
        return self._numbers.frozen()

    def put(self, positions: Tensor, labels: Tensor) -> None:
        """Set the classes of some nodes, each given once; ``UNLABELLED`` removes a label."""
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
        self._numbers.write(positions, labels)

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return everything kept, by name."""
        return super().pieces() | {"counts": self.counts_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().restore(state)
        self.counts_ = state["counts"]


class Moved(NamedTuple):
    """Nodes to be counted again."""

    places: Tensor  # their indices among the nodes given, ascending.  int64 [k]
    before: Tensor  # the vectors they are counted as.  float32 [k, dims]
    after: Tensor  # the vectors to count them as.  float32 [k, dims]


class Counted(KeptArrays):
    """The vector with which each labelled node is counted in the head's sums.

    A node is counted again if a part of its vector has moved by more than ``tolerance`` times its
    length since it was last counted: ‖now_b - counted_b‖ > τ ‖counted_b‖. Parts that have moved
    less keep their counted value. The exact counted vector is kept, so that it can be subtracted
    whatever the node's embedding is by then. With τ = 0 every changed part is counted again.

    Only counted nodes have a row here. ``mark`` records nodes that have lost neighbours: their
    counted vector may still hold a trace of these, which must go when one of them is forgotten.

    Args:
        parts: widths of the parts of a vector.
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
        self._slots = GrowingArray(dtype=np.int64)  # by position, starting at 1; 0: not counted
        self._rows = GrowingArray(sum(parts))
        self._reaches = GrowingArray(len(parts))  # by slot: τ² ‖counted_b‖², -1 if below TINY
        self._marks = GrowingArray(dtype=np.bool_)  # by slot
        self._free = np.empty(0, np.int64)  # a stack of free slots
        self.kept = {"slots": self._slots, "rows": self._rows, "marks": self._marks}

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield all arrays that are as long as the graph, or as its counted nodes."""
        yield from (*super().arrays(), self._reaches)

    def of(self, nodes: Tensor) -> Tensor:
        """Return the vectors that nodes are counted as.  int64 [n] -> float32 [n, dims]"""
        return self._rows.tensor[torch.from_numpy(self._slots.array[nodes.numpy()] - 1)]

    def put(self, nodes: Tensor, vectors: Tensor) -> None:
        """Set the vectors that nodes are counted as.  int64 [n], each once; float32 [n, dims]"""
        if len(nodes):
            self._slots.extend(max(int(nodes.max()) + 1 - len(self._slots), 0))
            positions = nodes.numpy()
            fresh = positions[self._slots.array[positions] == 0]
            # Free slots first, then new ones.
            known, start = min(len(fresh), len(self._free)), len(self._rows)
            self._free, reused = np.split(self._free, [len(self._free) - known])
            for array in (self._rows, self._reaches, self._marks):
                array.extend(len(fresh) - known)
            taken = np.concatenate([reused, np.arange(start, len(self._rows))])
            self._slots.array[fresh] = taken + 1
            slots, rows = self._slots.array[positions] - 1, vectors.numpy()
            for part in self._rows.blocks(len(slots), ROWS):
                self._rows.array[slots[part]] = rows[part]
                self._reaches.array[slots[part]] = self._reach(rows[part])

    def _reach(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the squares of how far parts may move.  [n, dims] -> [n, parts]"""
        lengths = np.add.reduceat(rows * rows, self._starts, axis=1)
        return np.where(lengths < TINY, -1.0, self.tolerance**2 * lengths)

    def drop(self, nodes: Tensor) -> None:
        """Remove nodes that are no longer counted."""
        slots = self._slots.array[nodes.numpy()] - 1
        self._rows.array[slots] = 0
        self._marks.array[slots] = False
        self._slots.array[nodes.numpy()] = 0
        self._free = np.concatenate([self._free, slots])

    def mark(self, nodes: Tensor) -> None:
        """Mark counted nodes that have lost neighbours; needless without a tolerance."""
        if self.tolerance:
            self._marks.array[self._slots.array[nodes.numpy()] - 1] = True

    def unmarked(self) -> Tensor:
        """Return the marked nodes, and clear the marks.  int64 [n], ascending"""
        positions = np.flatnonzero(self._slots.array)
        found = positions[self._marks.array[self._slots.array[positions] - 1]]
        self._marks.array[:] = False
        return torch.from_numpy(found)

    def moved(
        self, nodes: Tensor, vectors: Tensor, *, among: Tensor | None = None, exactly: bool = False
    ) -> Moved:
        """Return the nodes to be counted again.  int64 [n], float32 [n, dims]

        among: which of them are counted, by default all, bool [n]; exactly: treat τ as 0.
        """
        counted = np.arange(len(nodes)) if among is None else np.flatnonzero(among.numpy())
        now, positions = vectors.numpy(), nodes.numpy()
        places, found = np.empty_like(counted), 0
        before, after = (self._rows.room(len(counted)) for _ in range(2))  # few rows are used
        for part in self._rows.blocks(len(counted), ROWS):
            rows = counted[part]
            slots, here = self._slots.array[positions[rows]] - 1, now.take(rows, axis=0)
            was = self._rows.array.take(slots, axis=0)
            far = self._far(slots, was, here, exactly or not self.tolerance)
            some = np.flatnonzero(far.any(1))
            into = slice(found, found + len(some))
            places[into], before.numpy()[into] = rows[some], was[some]
            which = np.repeat(far[some], self._parts, axis=1)
            after.numpy()[into] = np.where(which, here[some], was[some])
            found += len(some)
        return Moved(torch.from_numpy(places[:found]), before[:found], after[:found])

    def surely_near(self, nodes: Tensor, parts: Sequence[StoredPart]) -> NDArray[np.bool_]:
        """Return which counted nodes have certainly not moved, without reading whole vectors.

        Distances are rounded differently than in ``moved``, which decides close to the limit.

        nodes: int64 [n]; parts: of all vectors, side by side -> bool [n]
        """
        from evergraph.online.graph.live_kernels import add_gaps  # compiled by numba

        slots = self._slots.array[nodes.numpy()] - 1
        near, gaps, part, first = np.ones(len(nodes), np.bool_), np.zeros(len(nodes)), 0, 0
        ends = list(accumulate(self._parts))
        for rows, unit, own, shown in parts:
            given = (nodes.numpy(), slots, rows, own, shown, unit, self._rows.array, first, gaps)

            def add(some: slice, given: tuple[Any, ...] = given) -> None:
                add_gaps(*given, some.start, some.stop)

            in_parts(add, np.ones(len(nodes), np.int64), each=3 * rows.shape[1])
            first += rows.shape[1]
            if first == ends[part]:  # a part may lie in several arrays
                near &= (gaps < NEARER * self._reaches.array[slots, part]) | (gaps == 0)
                gaps, part = np.zeros(len(nodes)), part + 1
        assert part == len(self._parts), "arrays end where parts do"
        return near

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
        far[some] &= differs  # parts below TINY count as far unless they are equal
        return far

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return everything kept, by name."""
        return super().pieces() | {"free": torch.from_numpy(self._free.copy())}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().restore(state)
        rows = state["rows"].numpy()
        self._reaches.extend(len(rows) - len(self._reaches))
        for start in range(0, len(rows), ROWS):
            self._reaches.array[start : start + ROWS] = self._reach(rows[start : start + ROWS])
        self._free = state["free"].numpy().copy()


class Solving:
    """Decides after every change whether to solve for the scores now, or to wait for more changes.

    Scores are solved at once if it is ``urgent`` (a class appeared or vanished, a node was
    forgotten, a label was removed, a class became large enough to be held back from), if there are
    fewer than ``SMALL`` labelled nodes, or if more than ``SHARE`` of these were counted since the
    last solution; and at the latest after ``patience`` changes. The decision never depends on time,
    so that a replay of the same changes solves at the same points.

    Args:
        patience: changes after which scores are solved at the latest; 1 solves after every change.

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
        """Whether something was counted since scores were last solved."""
        return self._counted > 0

    def due(self, counted: int, *, known: int, urgent: bool = False) -> bool:
        """Record a change; return whether scores must be solved now.

        counted: how many nodes it counted; known: how many labelled nodes there are.
        """
        self._counted += counted
        self._changes += self._counted > 0
        small = known < SMALL or self._counted > SHARE * known
        due = urgent or (self.behind and (small or self._changes >= self.patience))
        if due:
            self._counted = self._changes = 0
        return due

    def state(self) -> dict[str, Tensor]:
        """Return the changes and nodes since the last solution."""
        return {"waiting": torch.tensor([self._changes, self._counted])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._changes, self._counted = state["waiting"].tolist()
