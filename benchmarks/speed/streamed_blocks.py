"""Pairs of nodes from a degree-corrected block model of any size, streamed to disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from evergraph.core.errors import ConfigurationError

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

_STEPS = 1 << 20  # of a random shift: coarse enough that a sum with a whole number is exact
_BLOCK = 1 << 20  # nodes looked at at a time


class StubMatching:
    """A configuration model within groups, drawn in batches.

    A node is given as many loose ends as its weight says on average, once on the left and once on
    the right. Those on the right are shuffled within their group; then left and right are joined
    in order. Node u is joined to v with an expected count ∝ w_u w_v in a group and never across
    groups. Weights are turned into counts by systematic sampling: one random shift of the sum of
    weights, rounded down at every node, so that a batch costs one pass over the nodes and a
    shuffle and needs no search in a table. Doubles and self-loops do occur.

    Args:
        groups: the group of each node, 0, 1, ...  integer [nodes]
        weights: at least 0.  float64 [nodes]

    Beside these it holds 12 bytes a node.

    >>> pairs = StubMatching(np.array([0, 1, 1, 0]), np.array([1.0, 1.0, 1.0, 0.0]))
    >>> left, right = pairs.draw(6, generator=np.random.default_rng(0))
    >>> left.tolist()
    [0, 0, 1, 1, 2, 2]
    >>> pairs.expected(np.array([1, 1, 0]), np.array([2, 0, 3])).tolist()
    [0.5, 0.0, 0.0]
    """

    def __init__(self, groups: NDArray[np.integer], weights: NDArray[np.float64]) -> None:
        self.groups = groups
        self.weights = weights
        self.totals = np.bincount(groups, weights)  # [groups]
        self.order = np.argsort(groups, kind="stable").astype(np.int32)  # group by group
        ends = np.cumsum(np.bincount(groups))  # where each group ends in that order
        self._members = [*map(slice, (0, *ends[:-1]), ends)]
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
        shift = _shift(generator)
        found: NDArray[np.int32] = np.empty(stops[-1], np.int32)
        filled = 0
        for members, start, stop in zip(self._members, (0, *stops[:-1]), stops, strict=True):
            for first in range(members.start, members.stop, _BLOCK):
                some = slice(first, min(first + _BLOCK, members.stop))
                # Shares end at exactly 1, so that a group's last node ends at exactly its stop.
                places = self._shares[some] * (stop - start) + start
                ends = np.floor(places + shift).astype(np.int64)
                counts = np.diff(ends, prepend=filled)
                found[filled : ends[-1]] = np.repeat(self.order[some], counts)
                filled = int(ends[-1])
        return found

    def _shares_so_far(self) -> NDArray[np.float64]:
        """Return each node's and its forerunners' share of the group's weight.  [nodes]"""
        shares = self.weights[self.order]
        np.cumsum(shares, out=shares)
        stops = [members.stop for members in self._members]
        last = [0.0, *(shares[stop - 1] if stop else 0.0 for stop in stops)]
        for members, before, after in zip(self._members, last[:-1], last[1:], strict=True):
            shares[members] -= before
            if after > before:
                shares[members] /= after - before
            else:
                shares[members] = 1.0
        return shares


def _shift(generator: np.random.Generator) -> float:
    return float(generator.integers(_STEPS)) / _STEPS


BATCH = 1 << 22  # pairs, or half as many as nodes: every batch is a pass over them
SAMPLE = 1 << 18  # pairs
_CLOSE = 1e-4


class StreamedBlockModel:
    """Pairs of nodes, some drawn within a block and some among all nodes.

    Model (Karrer and Newman, 2011), with two weights a node: u and v meet Poisson(λ_uv) times,
    λ_uv = s a_u a_v / A_c within block c, plus t b_u b_v / B among all. A graph has an edge once:
    its expected number of edges is Σ 1 - exp(-λ_uv), which falls behind Σ λ_uv where hubs meet.

    Args:
        blocks: the block of each node, 0, 1, ...  integer [nodes]
        within: a, the neighbours a node looks for in its block.  float64 [nodes]
        among: b, those it looks for everywhere.  float64 [nodes]
        generator: where draws come from.

    >>> blocks = np.arange(1000) % 4
    >>> model = StreamedBlockModel(blocks, np.full(1000, 8.0), np.full(1000, 2.0),
    ...                            generator=np.random.default_rng(0))
    >>> within, among = model.plan(5000, 0.8, labels=blocks)
    >>> within > 3700 and 1300 < among < 1400  # a quarter of these fall within a block
    True
    >>> sum(len(left) for left, _ in model.draw(within, among)) == within + among
    True
    """

    def __init__(
        self,
        blocks: NDArray[np.integer],
        within: NDArray[np.float64],
        among: NDArray[np.float64],
        *,
        generator: np.random.Generator,
    ) -> None:
        self.within = StubMatching(blocks, within)
        self.among = StubMatching(np.zeros_like(blocks), among)
        self.generator = generator

    def plan(self, edges: int, homophily: float, *, labels: NDArray[np.integer]) -> tuple[int, int]:
        """Return how many pairs to draw within blocks and among all, doubles included.

        s and t are chosen so that, once doubles and self-loops are dropped, there are about so
        many edges and a share ``homophily`` of them joins equal labels. Sums over all pairs of
        nodes are estimated from a sample that is drawn in proportion to λ.
        """
        together, apart = self._sample_within(labels), self._sample_among(labels)
        wanted = np.array([homophily, 1.0]) * edges

        def miss(factors: NDArray[np.float64]) -> NDArray[np.float64]:
            found = together.edges(*factors) + apart.edges(0.0, factors[1])
            return np.asarray((found - wanted) / edges)

        s, t = solution = scipy.optimize.root(miss, np.ones(2)).x
        if np.abs(miss(solution)).max() > _CLOSE or solution.min() < 0:
            raise ConfigurationError(
                f"{edges:,} edges of homophily {homophily} cannot be had: the nodes of a block are "
                "too few, or too few of them have its label"
            )
        return round(s * self.within.pairs), round(t * self.among.pairs)

    def draw(self, within: int, among: int) -> Iterator[Pairs]:
        """Yield so many pairs of both kinds, in batches, doubles and self-loops included."""
        size = max(BATCH, len(self.among.weights) // 2)
        batches = max(1, -(-(within + among) // size))
        for number in range(batches):
            for matching, count in ((self.within, within), (self.among, among)):
                size = (number + 1) * count // batches - number * count // batches
                if size:
                    yield matching.draw(size, generator=self.generator)

    def _sample_within(self, labels: NDArray[np.integer]) -> _Sample:
        """Sample the pairs of nodes of one block."""
        left, right = self.within.draw(SAMPLE, generator=self.generator)
        return self._sample(left, right, left != right, self.within, labels)

    def _sample_among(self, labels: NDArray[np.integer]) -> _Sample:
        """Sample the pairs of nodes of two blocks."""
        left, right = self.among.draw(SAMPLE, generator=self.generator)
        blocks = self.within.groups
        return self._sample(left, right, blocks[left] != blocks[right], self.among, labels)

    def _sample(
        self,
        left: NDArray[np.int32],
        right: NDArray[np.int32],
        counts: NDArray[np.bool_],
        drawn_by: StubMatching,
        labels: NDArray[np.integer],
    ) -> _Sample:
        left, right = left[counts], right[counts]
        within, among = self.within.expected(left, right), self.among.expected(left, right)
        weight = drawn_by.pairs / len(counts) / (within if drawn_by is self.within else among)
        return _Sample(within, among, weight, labels[left] == labels[right])


@dataclass(frozen=True, eq=False)
class _Sample:
    """Pairs of nodes, each standing for ``weight`` of its kind.  4 x [pairs]"""

    within: NDArray[np.float64]
    among: NDArray[np.float64]
    weight: NDArray[np.float64]
    alike: NDArray[np.bool_]

    def edges(self, s: float, t: float) -> NDArray[np.float64]:
        """Return how many edges there are between equal labels, and how many in all.  [2]"""
        each = self.weight * -np.expm1(-(s * self.within + t * self.among))
        return np.array([each[self.alike].sum(), each.sum()])


def geometric_sizes(total: int, count: int, smallest: int) -> NDArray[np.int64]:
    """Share a total out into sizes that fall geometrically to ``smallest``.  int64 [count]

    size_k = smallest · q^(count - 1 - k), with the q that makes the sum right.

    >>> geometric_sizes(70, 3, 10).tolist(), geometric_sizes(7, 3, 2).tolist()
    ([40, 20, 10], [3, 2, 2])
    """
    powers = np.arange(count)
    most = (total / smallest) ** (1 / max(count - 1, 1)) + 1

    def excess(q: float) -> float:
        return float((smallest * q**powers).sum()) - total

    q = scipy.optimize.brentq(excess, 1.0, most) if count > 1 and excess(1.0) < 0 else 1.0
    ends = np.rint((smallest * q**powers).cumsum()).astype(np.int64)
    ends[-1] = total
    sizes: NDArray[np.int64] = np.diff(ends, prepend=0)[::-1]
    return sizes


def log_normal_sizes(count: int, mean: float, largest: float) -> NDArray[np.float64]:
    """Return the quantiles of a log-normal law with this mean and this largest value.  [count]

    exp(μ + σ z) with standard normal z has the mean exp(μ + σ²/2), and the largest of n values has
    about z_n = Φ⁻¹(1 - 1/2n): so ln(largest / mean) = σ z_n - σ²/2. Quantiles instead of draws,
    so that no seed has a freak among its hubs.

    >>> sizes = log_normal_sizes(10_000, 50.0, 2000.0)
    >>> round(sizes.mean()), round(sizes.max())
    (50, 2000)
    """
    z = scipy.special.ndtri((np.arange(count) + 0.5) / count)
    # Beyond z_n no σ reaches the ratio: the law is then as wide as it gets.
    sigma = z[-1] - math.sqrt(max(z[-1] ** 2 - 2 * math.log(max(largest / mean, 1.0)), 0.0))
    sizes: NDArray[np.float64] = np.exp(sigma * z)
    sizes *= mean / sizes.mean()
    return np.minimum(sizes, largest)
