"""Labelled nodes that are not learned from, but tell which head is right."""

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

SHARE = 16  # of so many nodes of a class one is held back
MOST = 64  # of a class
FEW = 8  # of a class: one more or less changes what they say together


def lot(node: NodeId) -> int:
    """Return a number that looks random and depends on a node's name alone.  64 bits, signed

    >>> lot("a") == lot("a"), lot("1") == lot(1)
    (True, False)
    """
    drawn = blake2b(repr(node).encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big", signed=True)


class HeldBack:
    """Of each class with n labelled nodes the min(n // 16, 64) that are first by ``lot``.

    Who is held back follows from the names of all labelled nodes and their classes, whatever the
    order in which they came or went. A label that comes or goes moves few nodes between those that
    are learned from and these.

    >>> held = HeldBack()
    >>> held.extend(range(32))
    >>> came = held.change(torch.arange(32), torch.full((32,), -1), torch.zeros(32).long())
    >>> len(came), bool(held.mask(came).all())
    (2, True)
    >>> went = held.change(torch.tensor([int(came[0])]), torch.tensor([0]), torch.tensor([-1]))
    >>> int(held.mask(torch.arange(32)).sum())  # 31 // 16
    1
    """

    def __init__(self) -> None:
        self._lots = GrowingArray(dtype=np.int64)
        self._held = GrowingArray(dtype=np.bool_)
        self._members: list[list[tuple[int, int]]] = []  # of each class: lot, position; in order

    @property
    def nbytes(self) -> int:
        """How many bytes lots and marks take."""
        return self._lots.nbytes + self._held.nbytes

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Add nodes whose class is not known."""
        start = len(self._lots)
        self._lots.extend(len(ids))
        self._held.extend(len(ids))
        self._lots.array[start:] = [lot(node) for node in ids]

    def mask(self, nodes: Tensor) -> Tensor:
        """Return which nodes are held back.  int64 [n] -> bool [n]"""
        return self._held.tensor[nodes]

    @property
    def nodes(self) -> Tensor:
        """All that are held back, class by class, each in the order of lots.  int64 [held]"""
        held = [position for members in self._members for _, position in _first(members)]
        return torch.tensor(held, dtype=torch.int64)

    def first(self, most: int) -> Tensor:
        """Return so many of them at most, in the same order: of every class the first, the next...

        Where the last round has too many, those that are first by ``lot``: like who is held back it
        follows from names and classes alone.  -> int64 [most or fewer]
        """
        nodes = self.nodes
        if len(nodes) <= most:
            return nodes
        ranks = [rank for members in self._members for rank, _ in enumerate(_first(members))]
        lots = self._lots.array[nodes.numpy()]
        chosen = np.sort(np.lexsort((nodes.numpy(), lots, np.array(ranks)))[:most])
        return nodes[torch.from_numpy(chosen)]

    def change(self, nodes: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """Follow labels that came, went or changed; return who is held back now or no longer.

        nodes: each once, int64 [n]; before, after: classes, ``UNLABELLED`` for none, int64 [n]
        """
        self._members += [[] for _ in range(_most(before, after) + 1 - len(self._members))]
        left, joined = self._by_class(nodes, before), self._by_class(nodes, after)
        old: set[int] = set()
        new: set[int] = set()
        for label in left.keys() | joined.keys():
            members = self._members[label]
            old.update(position for _, position in _first(members))
            _replace(members, left.get(label, []), joined.get(label, []))
            new.update(position for _, position in _first(members))
        self._held.array[sorted(old - new)] = False
        self._held.array[sorted(new - old)] = True
        return torch.tensor(sorted(old ^ new), dtype=torch.int64)

    def few(self, labels: Tensor) -> bool:
        """Return whether any of these classes has but few nodes held back.  int64 [n]"""
        classes = set(labels[labels != UNLABELLED].tolist())
        return any(len(self._members[label]) // SHARE < FEW for label in classes)

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
        yield from (self._lots, self._held)

    def state(self) -> dict[str, Tensor]:
        """Return what labels do not tell."""
        return {"lots": self._lots.state()}

    def restore(self, state: dict[str, Tensor], labels: Tensor) -> None:
        """Take back what ``state`` returned; labels: of all positions.  int64 [positions]"""
        self._lots.restore(state["lots"])
        self._held = GrowingArray(dtype=np.bool_)
        self._held.extend(len(labels))
        self._members = []
        known = (labels != UNLABELLED).nonzero().flatten()
        self.change(known, torch.full_like(known, UNLABELLED), labels[known])


def _first(members: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return members[: min(len(members) // SHARE, MOST)]


def _most(*labels: Tensor) -> int:
    return max((int(part.max()) for part in labels if len(part)), default=-1)


def _replace(
    members: list[tuple[int, int]], left: Iterable[tuple[int, int]], joined: list[tuple[int, int]]
) -> None:
    """Take some out of an ordered list and put others in."""
    for one in left:
        del members[bisect_left(members, one)]
    if len(joined) > SHARE:
        members += joined
        members.sort()
    else:
        for one in joined:
            insort(members, one)
