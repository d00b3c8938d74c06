"""Labelled nodes that tell which head is right."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.delta import NodeId
from evergraph.online.graph.growing_array import GrowingArray

LEAST = 16  # labelled nodes that a class must have to have a say
MOST = 1024  # of a class; a head may look at fewer, see ``first``
# Earlier versions did not learn from one of so many nodes of a class, and so many at most.
FORMER_SHARE, FORMER_MOST = 16, 64


def lot(node: NodeId) -> int:
    """Return a number that looks random and depends on a node's name alone.  64 bits, signed

    >>> lot("a") == lot("a"), lot("1") == lot(1)
    (True, False)
    """
    drawn = blake2b(repr(node).encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big", signed=True)


class HeldBack:
    """Of each class with 16 labelled nodes or more the 1,024 that are first by ``lot``.

    All of them are learned from; what is asked about one is answered as if it alone were not. Who
    is asked follows from the names of all labelled nodes and their classes, whatever the order in
    which they came or went; where there are no more than a head looks at, it is all of them, and
    names decide nothing.

    >>> held = HeldBack()
    >>> held.extend(range(32))
    >>> held.change(torch.arange(32), torch.full((32,), -1), torch.zeros(32).long())
    True
    >>> len(held.nodes), len(held.first(4))
    (32, 4)
    """

    def __init__(self) -> None:
        self._lots = GrowingArray(dtype=np.int64)
        self._members: list[list[tuple[int, int]]] = []  # of each class: lot, position; in order

    @property
    def nbytes(self) -> int:
        """How many bytes lots take."""
        return self._lots.nbytes

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Add nodes whose class is not known."""
        start = len(self._lots)
        self._lots.extend(len(ids))
        self._lots.array[start:] = [lot(node) for node in ids]

    @property
    def nodes(self) -> Tensor:
        """All that are held back, class by class, each in the order of lots.  int64 [held]"""
        held = [position for members in self._members for _, position in _first(members)]
        return torch.tensor(held, dtype=torch.int64)

    def first(self, most: int, *, balanced: bool = True) -> Tensor:
        """Return so many of them at most, in the same order: of every class the first, the next...

        Where the last round has too many, those that are first by ``lot``: like who is held back it
        follows from names and classes alone. Unless ``balanced`` those that are first of all, so
        that classes have the shares that they have in the graph.  -> int64 [most or fewer]
        """
        return self._in_turn([_first(members) for members in self._members], most, balanced)

    def landmarks(self, most: int) -> Tensor:
        """Return labelled nodes that stand for all: of every class as many, so many at most.

        A class that has fewer leaves room for others. Which ones follows from names and classes
        alone, and those of classes too small to have a say are among them.  -> int64 [n]
        """
        return self._in_turn([members[:most] for members in self._members], most)

    def _in_turn(
        self, members: list[list[tuple[int, int]]], most: int, balanced: bool = True
    ) -> Tensor:
        nodes = torch.tensor([p for some in members for _, p in some], dtype=torch.int64)
        if len(nodes) <= most:
            return nodes
        ranks = np.array([rank for some in members for rank, _ in enumerate(some)])
        lots = self._lots.array[nodes.numpy()]
        chosen = np.lexsort((nodes.numpy(), lots, ranks if balanced else 0 * ranks))[:most]
        return nodes[torch.from_numpy(np.sort(chosen))]

    def change(self, nodes: Tensor, before: Tensor, after: Tensor) -> bool:
        """Follow labels that came, went or changed; return whether a class has a say now or lost it

        nodes: each once, int64 [n]; before, after: classes, ``UNLABELLED`` for none, int64 [n]
        """
        self._members += [[] for _ in range(_most(before, after) + 1 - len(self._members))]
        left, joined = self._by_class(nodes, before), self._by_class(nodes, after)
        other = False
        for label in left.keys() | joined.keys():
            members = self._members[label]
            spoke = bool(_first(members))
            _replace(members, left.get(label, []), joined.get(label, []))
            other |= spoke != bool(_first(members))
        return other

    def formerly(self) -> Tensor:
        """Return who was not learned from by an earlier version.  int64 [n], ascending"""
        firsts = (ms[: min(len(ms) // FORMER_SHARE, FORMER_MOST)] for ms in self._members)
        held = sorted(position for members in firsts for _, position in members)
        return torch.tensor(held, dtype=torch.int64)

    def _by_class(self, nodes: Tensor, labels: Tensor) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        lots = self._lots.array[nodes.numpy()].tolist()
        for place, position, label in zip(lots, nodes.tolist(), labels.tolist(), strict=True):
            if label != UNLABELLED:
                found.setdefault(label, []).append((place, position))
        return found

    def wipe(self, nodes: Tensor) -> None:
        """Forget the names of nodes that are gone."""
        self._lots.array[nodes.numpy()] = 0

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._lots

    def state(self) -> dict[str, Tensor]:
        """Return what labels do not tell, and that those held back were learned from."""
        return {"lots": self._lots.state(), "learned": torch.tensor(True)}

    def restore(self, state: dict[str, Tensor], labels: Tensor) -> None:
        """Take back what ``state`` returned; labels: of all positions.  int64 [positions]"""
        self._lots.restore(state["lots"])
        self._members = []
        known = (labels != UNLABELLED).nonzero().flatten()
        self.change(known, torch.full_like(known, UNLABELLED), labels[known])


def _first(members: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return members[:MOST] if len(members) >= LEAST else []


def _most(*labels: Tensor) -> int:
    return max((int(part.max()) for part in labels if len(part)), default=-1)


def _replace(
    members: list[tuple[int, int]], left: Iterable[tuple[int, int]], joined: list[tuple[int, int]]
) -> None:
    """Take some out of an ordered list and put others in."""
    for one in left:
        del members[bisect_left(members, one)]
    if len(joined) > LEAST:
        members += joined
        members.sort()
    else:
        for one in joined:
            insort(members, one)
