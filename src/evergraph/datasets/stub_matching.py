"""Pairs of nodes, drawn by joining the loose ends that their weights give them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

_STEPS = 1 << 20  # of a random shift: coarse enough that a sum with a whole number is exact


class StubMatching:
    """A configuration model within groups, drawn in batches.

    A node is given as many loose ends as its weight says on average, once on the left and once on
    the right. Those on the right are shuffled within their group; then left and right are joined
    in order. Node u is joined to v with an expected count ∝ w_u w_v in a group and never across
    groups. Weights are turned into counts by systematic sampling: one random shift of the sum of
    weights, rounded down at every node, so that a batch costs one pass over the nodes and a
    shuffle and needs no search in a table. Doubles and self-loops do occur.

    Args:
        groups: the group of each node, 0, 1, ...  int64 [nodes]
        weights: at least 0.  float64 [nodes]

    >>> pairs = StubMatching(np.array([0, 1, 1, 0]), np.array([1.0, 1.0, 1.0, 0.0]))
    >>> left, right = pairs.draw(6, generator=np.random.default_rng(0))
    >>> left.tolist()
    [0, 0, 1, 1, 2, 2]
    >>> pairs.expected(np.array([1, 1, 0]), np.array([2, 0, 3])).tolist()
    [0.5, 0.0, 0.0]
    """

    def __init__(self, groups: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        self.groups = groups
        self.weights = weights
        self.totals = np.bincount(groups, weights)  # [groups]
        self.order = np.argsort(groups, kind="stable").astype(np.int32)  # group by group
        self._ends = np.cumsum(np.bincount(groups))  # where each group ends in that order
        self._shares = self._shares_so_far()

    @property
    def pairs(self) -> float:
        """How many pairs give each node its weight in neighbours."""
        return float(self.totals.sum()) / 2

    def draw(self, count: int, *, generator: np.random.Generator) -> Pairs:
        """Draw pairs; the left ends are grouped.  -> int32 [count], int32 [count]"""
        shares = np.cumsum(self.totals) / self.totals.sum()
        stops = np.floor(count * shares + _shift(generator)).astype(np.int64)
        stops[-1] = count
        left = self._stubs(stops, generator)
        right = self._stubs(stops, generator)
        for start, stop in zip((0, *stops[:-1]), stops, strict=True):
            generator.shuffle(right[start:stop])
        return left, right

    def expected(
        self, left: NDArray[np.integer], right: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Return how often two different nodes meet among ``self.pairs``.  -> [len(left)]"""
        group = self.groups[left]
        product = self.weights[left] * self.weights[right]
        together = (group == self.groups[right]) & (product > 0)
        meetings: NDArray[np.float64] = np.zeros(len(left))
        np.divide(product, self.totals[group], out=meetings, where=together)
        return meetings

    def _stubs(self, stops: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int32]:
        """Return nodes as often as the weights say, up to ``stops`` in each group."""
        starts = np.concatenate([[0], stops[:-1]])
        sizes = np.diff(self._ends, prepend=0)
        # Shares end at exactly 1, so that a group's last node ends at exactly its stop.
        places = self._shares * np.repeat(stops - starts, sizes) + np.repeat(starts, sizes)
        counts = np.diff(np.floor(places + _shift(generator)).astype(np.int64), prepend=0)
        return np.repeat(self.order, counts)

    def _shares_so_far(self) -> NDArray[np.float64]:
        """Return each node's and its forerunners' share of the group's weight.  [nodes]"""
        summed = np.cumsum(self.weights[self.order])
        before = np.concatenate([[0.0], summed])[np.concatenate([[0], self._ends[:-1]])]
        sizes = np.diff(self._ends, prepend=0)
        whole = np.repeat(summed[self._ends - 1] - before, sizes)
        part = summed - np.repeat(before, sizes)
        shares: NDArray[np.float64] = np.ones_like(part)
        np.divide(part, whole, out=shares, where=whole > 0)
        return shares


def _shift(generator: np.random.Generator) -> float:
    return float(generator.integers(_STEPS)) / _STEPS
