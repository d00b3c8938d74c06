"""Labelled nodes: classes, the vectors they are counted as, who is held back, when to solve."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.graphs.kernels.row_ranges import in_parts
from evergraph.online.delta import NodeId
from evergraph.online.graph.growing_array import GrowingArray, KeptArrays, StoredPart, blocks
from evergraph.online.state_arrays import Pieces

ROWS = 1024  # compared at a time, so that they stay in the processor's cache
TINY = 1e-30  # squared lengths below it have lost digits and cannot be compared
SMALL = 1024  # with fewer labelled nodes, scores are solved after every change
NEARER = 0.99  # share of the limit below which roundings cannot make a difference
SHARE = 1 / 16  # of the labelled nodes; once more have changed, scores are solved
LEAST = 2  # labelled nodes of a class before any of them is left out in turn
MOST = 1024  # of a class; a head may use fewer, see ``first``
Members = list[tuple[int, int]]  # sorted pairs (lot, position)


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
        return super().pieces() | {"counts": self.counts_}

    def restore(self, state: dict[str, Tensor]) -> None:
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
    counted vector, and the copy of a landmark, may hold a trace of these until one is forgotten.

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
            self._rows.changing(slots)
            for part in blocks(len(slots), ROWS):
                self._rows.array[slots[part]] = rows[part]
                self._reaches.array[slots[part]] = self._reach(rows[part])

    def _reach(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the squares of how far parts may move.  [n, dims] -> [n, parts]"""
        lengths = np.add.reduceat(rows * rows, self._starts, axis=1)
        return np.where(lengths < TINY, -1.0, self.tolerance**2 * lengths)

    def drop(self, nodes: Tensor) -> None:
        """Remove nodes that are no longer counted."""
        slots = self._slots.array[nodes.numpy()] - 1
        self._rows.write(torch.from_numpy(slots), 0)
        self._marks.array[slots] = False
        self._slots.array[nodes.numpy()] = 0
        self._free = np.concatenate([self._free, slots])

    def mark(self, nodes: Tensor) -> None:
        """Mark counted nodes that have lost neighbours; needless without a tolerance."""
        if self.tolerance:
            self._marks.array[self._slots.array[nodes.numpy()] - 1] = True

    def marked(self, nodes: Tensor) -> Tensor:
        """Return which of some nodes, counted or not, are marked.  int64 [n] -> bool [n]"""
        found, slots = np.zeros(len(nodes), np.bool_), np.zeros(len(nodes), np.int64)
        known = nodes.numpy() < len(self._slots)
        slots[known] = self._slots.array[nodes.numpy()[known]]
        found[slots > 0] = self._marks.array[slots[slots > 0] - 1]
        return torch.from_numpy(found)

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
        for part in blocks(len(counted), ROWS):
            rows = counted[part]
            slots, here = self._slots.array[positions[rows]] - 1, now.take(rows, axis=0)
            was = self._rows.array.take(slots, axis=0)
            far = np.ones((len(rows), len(self._parts)), np.bool_)
            if self.tolerance and not exactly:
                gaps = here - was
                gaps *= gaps
                far = ~(np.add.reduceat(gaps, self._starts, axis=1) <= self._reaches.array[slots])
            some = np.flatnonzero(far.any(1))  # parts below TINY count as far unless they are equal
            far[some] &= np.logical_or.reduceat(was[some] != here[some], self._starts, axis=1)
            some = np.flatnonzero(far.any(1))
            into = slice(found, found + len(some))
            places[into], before.numpy()[into] = rows[some], was[some]
            which = np.repeat(far[some], self._parts, axis=1)
            after.numpy()[into] = np.where(which, here[some], was[some])
            found += len(some)
        return Moved(torch.from_numpy(places[:found]), before[:found], after[:found])

    def surely_near(
        self, nodes: Tensor, parts: Sequence[StoredPart], *, updated: bool = True
    ) -> NDArray[np.bool_]:
        """Return which counted nodes have certainly not moved, without reading whole vectors.

        Distances are rounded differently than in ``moved``, which decides close to the limit.

        nodes: int64 [n]; parts: of all vectors, side by side; updated: whether features of any were
        updated since this was last asked -> bool [n]
        """
        from evergraph.online.graph.live_kernels import add_gaps  # compiled by numba

        slots = self._slots.array[nodes.numpy()] - 1
        near, gaps, part, first = np.ones(len(nodes), np.bool_), np.zeros(len(nodes)), 0, 0
        ends = list(accumulate(self._parts))
        counted = (self._rows.array.reshape(-1), self._rows.array.shape[1])
        for rows, unit, features, own, shown in parts:
            width = rows.shape[1]
            if features and not updated and width == self._parts[part]:  # as when last asked
                first, part = first + width, part + 1
                continue
            given = (nodes.numpy(), slots, rows.reshape(-1), width, own, shown.reshape(-1), unit)

            def add(some: slice, given: tuple[Any, ...] = (*given, *counted, first, gaps)) -> None:
                add_gaps(*given, some.start, some.stop)

            in_parts(add, np.ones(len(nodes), np.int64), each=3 * width)
            first += width
            if first == ends[part]:  # a part may lie in several arrays
                near &= (gaps < NEARER * self._reaches.array[slots, part]) | (gaps == 0)
                gaps, part = np.zeros(len(nodes)), part + 1
        assert part == len(self._parts), "arrays end where parts do"
        return near

    def pieces(self) -> dict[str, Tensor | Pieces]:
        return super().pieces() | {"free": torch.from_numpy(self._free.copy())}

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        rows = state["rows"].numpy()
        self._reaches.extend(len(rows) - len(self._reaches))
        for start in range(0, len(rows), ROWS):
            self._reaches.array[start : start + ROWS] = self._reach(rows[start : start + ROWS])
        self._free = state["free"].numpy().copy()


def lot(node: NodeId) -> int:
    """Return a pseudo-random number that depends only on a node's id.  64 bits, signed"""
    drawn = blake2b(repr(node).encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big", signed=True)


class HeldBack(KeptArrays):
    """The first 1,024 nodes by ``lot`` of each class that has at least ``least`` labelled nodes.

    All of them are learned from; the prediction for one is made as if it alone had been left out
    (leave-one-out in closed form). The choice depends only on the ids and classes of all labelled
    nodes, not on the order in which they came; after ``restore``, ``change`` is given all of them
    again. If there are no more than a head can use, all of them are chosen, and ids do not matter.

    >>> held = HeldBack()
    >>> held.extend(range(32))
    >>> held.change(torch.arange(32), torch.full((32,), -1), torch.zeros(32).long())
    True
    >>> len(held.first(64)), len(held.first(4))
    (32, 4)
    """

    def __init__(self, *, least: int = LEAST) -> None:
        self.least = least
        self._lots = GrowingArray(dtype=np.int64)
        self.kept = {"lots": self._lots}
        self._members: list[Members] = []  # by class

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Add unlabelled nodes."""
        start = len(self._lots)
        self._lots.extend(len(ids))
        self._lots.array[start:] = [lot(node) for node in ids]

    def first(self, most: int, *, balanced: bool = True) -> Tensor:
        """Return at most ``most`` of them: the first of every class, then the second, and so on.

        They come in the order of lots. The last round, if it has too many, is cut by ``lot``, so
        that this choice too depends only on ids and classes. Unless
        ``balanced``, the first by lot overall are returned: classes have their shares in the graph.
        -> int64 [most or fewer]
        """
        return self._in_turn([self._first(members) for members in self._members], most, balanced)

    def landmarks(self, most: int) -> Tensor:
        """Return at most ``most`` labelled nodes, equally many of every class.

        A class that has fewer leaves room for others. The choice depends only on ids and classes,
        and includes classes with fewer than ``least`` nodes.  -> int64 [n]
        """
        return self._in_turn([members[:most] for members in self._members], most)

    def _in_turn(self, members: list[Members], most: int, balanced: bool = True) -> Tensor:
        if balanced:  # so many rounds that the last of them has too many
            sizes, rounds = np.array([len(some) for some in members], np.int64), most
            while rounds > 1 and np.minimum(sizes, rounds // 2).sum() >= most:
                rounds //= 2
            members = [some[:rounds] for some in members]
        nodes = np.array([p for some in members for _, p in some], np.int64)
        lots = self._lots.array[nodes]
        if len(nodes) > most:
            ranks = np.array([rank for some in members for rank, _ in enumerate(some)])
            chosen = np.lexsort((nodes, lots, ranks if balanced else 0 * ranks))[:most]
            nodes, lots = nodes[chosen], lots[chosen]
        # So that the first few are of all classes, whatever the order in which these came.
        return torch.from_numpy(nodes[np.lexsort((nodes, lots))])

    def change(self, nodes: Tensor, before: Tensor, after: Tensor) -> bool:
        """Update for labels that came, went or changed; return whether a class crossed ``LEAST``.

        nodes: each once, int64 [n]; before, after: classes, ``UNLABELLED`` for none, int64 [n]
        """
        largest = max((int(part.max()) for part in (before, after) if len(part)), default=-1)
        self._members += [[] for _ in range(largest + 1 - len(self._members))]
        left, joined = self._by_class(nodes, before), self._by_class(nodes, after)
        other = False
        for label in left.keys() | joined.keys():
            members, come = self._members[label], joined.get(label, [])
            spoke = bool(self._first(members))
            for one in left.get(label, []):
                del members[bisect_left(members, one)]
            if len(come) > LEAST:
                members += come
                members.sort()
            else:
                for one in come:
                    insort(members, one)
            other |= self.least > 1 and spoke != bool(self._first(members))
        return other

    def _by_class(self, nodes: Tensor, labels: Tensor) -> dict[int, Members]:
        found: dict[int, Members] = {}
        lots = self._lots.array[nodes.numpy()].tolist()
        for drawn, position, label in zip(lots, nodes.tolist(), labels.tolist(), strict=True):
            if label != UNLABELLED:
                found.setdefault(label, []).append((drawn, position))
        return found

    def _first(self, members: Members) -> Members:
        """Return the nodes of a class that may be left out in turn."""
        return members[:MOST] if len(members) >= self.least else []

    def wipe(self, nodes: Tensor) -> None:
        """Erase the lots of removed nodes."""
        self._lots.array[nodes.numpy()] = 0


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
