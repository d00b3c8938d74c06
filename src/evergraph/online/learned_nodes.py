"""What is learned of nodes: their classes, which are left out, and their counted vectors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.graphs.csr import in_groups
from evergraph.online.arrays import (
    Array,
    GrowingArray,
    KeptArrays,
    Packing,
    Piece,
    blocks,
    check_kind,
    check_values,
    must,
)
from evergraph.online.delta import NodeId

ROWS = 512  # compared at a time, so that they stay in the processor's cache
TINY = 1e-30  # squared lengths below it have lost digits and cannot be compared


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
        self._numbers.append(np.full(nodes, UNLABELLED))

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
        counts = torch.zeros(width, dtype=torch.int64)
        counts[: len(self.counts_)] = self.counts_
        added = torch.bincount(labels[labels != UNLABELLED], minlength=width)
        removed = torch.bincount(old[old != UNLABELLED], minlength=width)
        self.counts_ = counts + added - removed
        self._numbers.write(positions, labels)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"counts": self.counts_}

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        numbers = classes.places[nodes.rows(self.every)]
        return {"numbers": numbers, "counts": classes.rows(self.counts_)}

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        check_kind("counts", state["counts"], self.counts_)
        self.counts_ = state["counts"]


def draw_number(node: NodeId) -> int:
    """Return a pseudo-random number that depends only on a node's id.  64 bits, signed"""
    digest = blake2b(repr(node).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class HeldBack(KeptArrays):
    """A random number for every node, by which nodes to leave out, and landmarks, are chosen.

    Nodes that are left out are learned from as well: each is predicted as if it alone had not been
    learned (leave-one-out in closed form). A choice depends only on the ids and classes of all
    labelled nodes, not on the order in which they were added.

    >>> held = HeldBack()
    >>> held.extend(range(32))
    >>> len(held.first(torch.zeros(32).long(), 64)), len(held.first(torch.arange(32), 64, least=2))
    (32, 0)
    """

    def __init__(self) -> None:
        self._numbers = GrowingArray(dtype=np.int64)
        self.kept = {"lots": self._numbers}

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Add nodes."""
        self._numbers.append([draw_number(node) for node in ids])

    def first(self, labels: Tensor, most: int, *, least: int = 1, balanced: bool = True) -> Tensor:
        """Return at most ``most`` nodes: the first of every class by number, then the second, ...

        If the last round has too many nodes, those with the lowest numbers are taken. Unless
        ``balanced``, the first by number overall are returned: classes have their shares in the
        graph. All are returned in the order of their numbers, so that the first few are of all
        classes.

        labels: of all positions, int64 [positions]; least: nodes of a class before any is chosen
        -> int64 [most or fewer]
        """
        labelled = (labels != UNLABELLED).nonzero().flatten()
        class_sizes = torch.bincount(labels[labelled])
        nodes = labelled[class_sizes[labels[labelled]] >= least]
        if len(nodes) > most:
            rounds = self._numbers.tensor[nodes]  # unless balanced, in which a node is chosen
            if balanced:
                order, rounds = in_groups(labels[nodes], rounds.argsort())
                nodes = nodes[order]
            early = rounds <= rounds.kthvalue(most).values
            nodes, rounds = nodes[early], rounds[early]
            numbers = self._numbers.array[nodes.numpy()]
            nodes = nodes[torch.from_numpy(np.lexsort((nodes, numbers, rounds))[:most])]
        numbers = self._numbers.array[nodes.numpy()]
        return nodes[torch.from_numpy(np.lexsort((nodes, numbers)))]

    def wipe(self, nodes: Tensor) -> None:
        """Erase the numbers of removed nodes."""
        self._numbers.array[nodes.numpy()] = 0


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
        exact: parts by number of which any change counts.

    >>> counted = Counted([1, 1], tolerance=0.1)
    >>> counted.put(torch.tensor([3]), torch.tensor([[1., 2.]]))
    >>> now = [Piece(2, lambda nodes: np.float32([[1.05, 3.]]))]
    >>> moved = counted.moved(torch.tensor([3]), now)
    >>> moved.before, moved.after  # the first part has hardly moved
    (tensor([[1., 2.]]), tensor([[1., 3.]]))
    """

    def __init__(
        self, parts: Sequence[int], *, tolerance: float = 0.0, exact: Collection[int] = ()
    ) -> None:
        self.tolerance = tolerance
        self._shares = np.full(len(parts), np.float32(tolerance**2))  # of squared lengths
        self._shares[list(exact)] = 0
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
            reusable = min(len(fresh), len(self._free))
            start = len(self._rows)
            self._free, reused = np.split(self._free, [len(self._free) - reusable])
            for array in (self._rows, self._reaches, self._marks):
                array.extend(len(fresh) - reusable)
            fresh_slots = np.concatenate([reused, np.arange(start, len(self._rows))])
            self._slots.array[fresh] = fresh_slots + 1
            slots, rows = self._slots.array[positions] - 1, vectors.numpy()
            for part in blocks(len(slots), ROWS):
                self._rows.array[slots[part]] = rows[part]
                self._reaches.array[slots[part]] = self._reach(rows[part])

    def _reach(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the squares of how far parts may move.  [n, dims] -> [n, parts]"""
        lengths = np.add.reduceat(rows * rows, self._starts, axis=1)
        return np.where(lengths < TINY, -1.0, self._shares * lengths)

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
        marked = np.zeros(len(nodes), np.bool_)
        slots = np.zeros(len(nodes), np.int64)
        have_slots = nodes.numpy() < len(self._slots)
        slots[have_slots] = self._slots.array[nodes.numpy()[have_slots]]
        marked[slots > 0] = self._marks.array[slots[slots > 0] - 1]
        return torch.from_numpy(marked)

    def unmarked(self) -> Tensor:
        """Return the marked nodes, and clear the marks.  int64 [n], ascending"""
        positions = np.flatnonzero(self._slots.array)
        marked = positions[self._marks.array[self._slots.array[positions] - 1]]
        self._marks.array[:] = False
        return torch.from_numpy(marked)

    def moved(
        self,
        nodes: Tensor,
        pieces: Sequence[Piece],
        *,
        whole: Sequence[Tensor] | None = None,
        exactly: bool = False,
    ) -> Moved:
        """Return which of some counted nodes are to be counted again.

        nodes: int64 [n]; pieces: of vectors; each is compared for the nodes in which it changed;
        whole: nodes that are compared in every piece, by default all; exactly: treat τ as 0
        """
        positions = nodes.numpy()
        slots = self._slots.array[positions] - 1
        far = np.zeros((len(nodes), len(self._parts)), np.bool_)
        start = 0
        for piece in pieces:
            stop = start + piece.width
            parts = slice(*np.searchsorted(self._starts, [start, stop]))
            places = np.arange(len(nodes))
            if whole is not None:
                changed = torch.cat([*whole, *piece.changed, nodes[:0]]).numpy()
                places = np.flatnonzero(np.isin(positions, changed))
            for block in blocks(len(places), ROWS):
                rows = places[block]
                counted = self._rows.array[slots[rows], start:stop]
                reaches = None if exactly else self._reaches.array[slots[rows], parts]
                starts = [column - start for column in self._starts[parts]]
                far[rows, parts] = self._far(counted, piece.rows(positions[rows]), starts, reaches)
            start = stop
        places = np.flatnonzero(far.any(1))
        before = self._rows.array.take(slots[places], axis=0)
        now = np.concatenate([piece.rows(positions[places]) for piece in pieces], axis=1)
        after = np.where(np.repeat(far[places], self._parts, axis=1), now, before)
        return Moved(torch.from_numpy(places), torch.from_numpy(before), torch.from_numpy(after))

    def _far(
        self, counted: Array, now: Array, starts: Sequence[int], reaches: Array | None
    ) -> Array:
        """Return which parts of a piece have moved too far.  [n, width] -> bool [n, parts]

        starts: of the parts in the piece; reaches: see ``_reaches``, None for τ = 0
        """
        far = np.ones((len(now), len(starts)), np.bool_)
        if self.tolerance and reaches is not None:
            gaps = now - counted
            gaps *= gaps
            far = ~(np.add.reduceat(gaps, starts, axis=1) <= reaches)
        # Parts below TINY count as far unless they are equal.
        moved = np.flatnonzero(far.any(1))
        far[moved] &= np.logical_or.reduceat(counted[moved] != now[moved], starts, axis=1)
        return far

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"free": torch.from_numpy(self._free.copy())}

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        """Return what is kept in the order of positions, without free slots."""
        slots = torch.zeros_like(nodes.living)
        slots[nodes.living < len(self._slots)] = nodes.rows(self._slots.tensor)
        counted = slots > 0
        old_slots = slots[counted] - 1
        slots[counted] = torch.arange(1, len(old_slots) + 1)
        kept = {"rows": self._rows.tensor[old_slots], "marks": self._marks.tensor[old_slots]}
        return {"slots": slots, "free": slots[:0].clone()} | kept

    def check_lengths(self, positions: int) -> None:
        rows, slots = len(self._rows), len(self._slots)
        must("slots", slots <= positions, f"have {positions:,} rows, not {slots:,}")
        must("marks", len(self._marks) == rows, f"have {rows:,} rows, not {len(self._marks):,}")

    def check_counted(self, labelled: Tensor) -> None:
        """Raise unless every labelled node has a row.  bool [positions]"""
        counted = torch.zeros_like(labelled)
        counted[: len(self._slots)] = self._slots.tensor > 0
        must("slots", bool(counted[labelled].all()), "be above 0 for labelled nodes")

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        check_kind("free", state["free"], state["slots"])
        check_values("slots", state["slots"], 0, below=len(self._rows) + 1)
        check_values("free", state["free"], 0, below=len(self._rows))
        rows = state["rows"].numpy()
        self._reaches.follow(len(rows))
        for start in range(0, len(rows), ROWS):
            self._reaches.array[start : start + ROWS] = self._reach(rows[start : start + ROWS])
        self._free = state["free"].numpy().copy()
