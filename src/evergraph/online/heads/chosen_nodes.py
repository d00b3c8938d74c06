"""Nodes that are chosen by hash: those left out in turn, landmarks, and when these are others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.delta import NodeId
from evergraph.online.graph.growing_array import GrowingArray, KeptArrays

LEAST = 2  # labelled nodes of a class before any of them is left out in turn
ONE_BY_ONE = 64  # nodes that join a class one by one; of more, all its nodes are sorted again
MOST = 1024  # of a class; a head may use fewer, see ``first``
Members = list[tuple[int, int]]  # sorted pairs (lot, position)
# Up to FEW labelled nodes are all landmarks, chosen anew with every change. Landmarks are also
# chosen anew when less than LEFT of the chosen ones are left, or when more than LATE of the nodes
# are of classes that came afterwards, which have no landmarks: see docs/decisions/0115.
FEW, LEFT, LATE = 1 << 8, 0.75, 0.05


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class LandmarkNodes:
    """The nodes whose copies are landmarks, and of what they were chosen.

    Attributes:
        nodes: positions, -1 for erased ones.  int64 [landmarks]
        counts: labelled nodes of each class when they were chosen.  int64 [classes]

    >>> four = LandmarkNodes(torch.tensor([7, 3, 9, 4]), torch.tensor([300]))
    >>> four.places(torch.tensor([9, 8]))
    tensor([ 2, -1])
    >>> three, erased = four.without(torch.tensor([3, 8]))
    >>> three.nodes, erased
    (tensor([ 7, -1,  9,  4]), tensor([1]))
    >>> [three.have_drifted(torch.tensor([count]), changed=True) for count in (599, 600)]
    [False, True]
    """

    nodes: Tensor = field(default_factory=_none)
    counts: Tensor = field(default_factory=_none)

    def have_drifted(self, counts: Tensor, *, changed: bool, late: bool = True) -> bool:
        """Return whether others are to be chosen for the labelled nodes that there are now.

        counts: of each class, int64 [classes]; changed: whether any of these nodes came, moved or
        went; late: whether nodes of classes that came later count
        """
        labelled = int(counts.sum())
        if labelled >= 2 * int(self.counts.sum()) or (changed and labelled <= FEW):
            return True
        later = counts.clone()
        later[: len(self.counts)][self.counts > 0] = 0
        left = int((self.nodes >= 0).sum())
        too_few = left < LEFT * min(len(self.nodes), labelled)
        return too_few or (late and int(later.sum()) > LATE * labelled)

    def without(self, nodes: Tensor) -> tuple[LandmarkNodes, Tensor]:
        """Return them without some nodes, and the places of these.  int64 [n] -> .., int64 [k]"""
        places = torch.isin(self.nodes, nodes).nonzero().flatten()
        return replace(self, nodes=self.nodes.index_fill(0, places, -1)), places

    def places(self, nodes: Tensor) -> Tensor:
        """Return which landmark each of some nodes is, -1 for none.  int64 [n] -> int64 [n]"""
        if not len(self.nodes):
            return torch.full_like(nodes, -1)
        known, places = self.nodes.sort()
        found = torch.searchsorted(known, nodes).clamp_max(len(known) - 1)
        return places[found].where(known[found] == nodes, -1)


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
            if len(come) > ONE_BY_ONE:
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
