"""Choice of the labelled nodes on which heads are compared, and of landmarks."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.delta import NodeId
from evergraph.online.graph.growing_array import GrowingArray, KeptArrays
from evergraph.online.pieces import Pieces

LEAST = 16  # labelled nodes of a class before any of them is held back
MOST = 1024  # of a class; a head may use fewer, see ``first``
# Earlier versions did not learn from one in 16 nodes of a class, 64 at most.
FORMER_SHARE, FORMER_MOST = 16, 64
Members = list[tuple[int, int]]  # sorted pairs (lot, position)


def lot(node: NodeId) -> int:
    """Return a pseudo-random number that depends only on a node's id.  64 bits, signed

    >>> lot("a") == lot("a"), lot("1") == lot(1)
    (True, False)
    """
    drawn = blake2b(repr(node).encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big", signed=True)


class HeldBack(KeptArrays):
    """The first 1,024 nodes by ``lot`` of each class that has at least 16 labelled nodes.

    All of them are learned from; the prediction for one is made as if it alone had been left out
    (leave-one-out in closed form). The choice depends only on the ids and classes of all labelled
    nodes, not on the order in which they came; after ``restore``, ``change`` is given all of them
    again. If there are no more than a head can use, all of them are chosen, and ids do not matter.

    >>> held = HeldBack()
    >>> held.extend(range(32))
    >>> held.change(torch.arange(32), torch.full((32,), -1), torch.zeros(32).long())
    True
    >>> len(held.nodes), len(held.first(4))
    (32, 4)
    """

    def __init__(self) -> None:
        self._lots = GrowingArray(dtype=np.int64)
        self.kept = {"lots": self._lots}
        self._members: list[Members] = []  # by class

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Add unlabelled nodes."""
        start = len(self._lots)
        self._lots.extend(len(ids))
        self._lots.array[start:] = [lot(node) for node in ids]

    @property
    def nodes(self) -> Tensor:
        """All held-back nodes, class by class, each in the order of lots.  int64 [held]"""
        return self.first(len(self._lots))

    def first(self, most: int, *, balanced: bool = True) -> Tensor:
        """Return at most ``most`` of them: the first of every class, then the second, and so on.

        The last round, if it has too many, is cut by ``lot``, so that this choice too depends only
        on ids and classes. Unless ``balanced``, the first by lot overall are returned, so that
        classes have the shares that they have in the graph.  -> int64 [most or fewer]
        """
        return self._in_turn([_first(members) for members in self._members], most, balanced)

    def landmarks(self, most: int) -> Tensor:
        """Return at most ``most`` labelled nodes, equally many of every class.

        A class that has fewer leaves room for others. The choice depends only on ids and classes,
        and includes classes with fewer than 16 nodes.  -> int64 [n]
        """
        return self._in_turn([members[:most] for members in self._members], most)

    def _in_turn(self, members: list[Members], most: int, balanced: bool = True) -> Tensor:
        nodes = torch.tensor([p for some in members for _, p in some], dtype=torch.int64)
        if len(nodes) <= most:
            return nodes
        ranks = np.array([rank for some in members for rank, _ in enumerate(some)])
        lots = self._lots.array[nodes.numpy()]
        chosen = np.lexsort((nodes.numpy(), lots, ranks if balanced else 0 * ranks))[:most]
        return nodes[torch.from_numpy(np.sort(chosen))]

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
            spoke = bool(_first(members))
            for one in left.get(label, []):
                del members[bisect_left(members, one)]
            if len(come) > LEAST:
                members += come
                members.sort()
            else:
                for one in come:
                    insort(members, one)
            other |= spoke != bool(_first(members))
        return other

    def formerly(self) -> Tensor:
        """Return the nodes that earlier versions did not learn from.  int64 [n], ascending"""
        firsts = (ms[: min(len(ms) // FORMER_SHARE, FORMER_MOST)] for ms in self._members)
        held = sorted(position for members in firsts for _, position in members)
        return torch.tensor(held, dtype=torch.int64)

    def _by_class(self, nodes: Tensor, labels: Tensor) -> dict[int, Members]:
        found: dict[int, Members] = {}
        lots = self._lots.array[nodes.numpy()].tolist()
        for drawn, position, label in zip(lots, nodes.tolist(), labels.tolist(), strict=True):
            if label != UNLABELLED:
                found.setdefault(label, []).append((drawn, position))
        return found

    def wipe(self, nodes: Tensor) -> None:
        """Erase the lots of removed nodes."""
        self._lots.array[nodes.numpy()] = 0

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return the lots, and that held-back nodes were learned from (earlier: they were not)."""
        return super().pieces() | {"learned": torch.tensor(True)}


def _first(members: Members) -> Members:
    return members[:MOST] if len(members) >= LEAST else []
