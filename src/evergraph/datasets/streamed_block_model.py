"""A degree-corrected block model that is drawn batch by batch, as large as the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from evergraph.core.errors import ConfigurationError
from evergraph.datasets.stub_matching import Pairs, StubMatching

BATCH = 1 << 22  # pairs
SAMPLE = 1 << 18  # pairs
_CLOSE = 1e-4


class StreamedBlockModel:
    """Pairs of nodes, some drawn within a block and some among all nodes.

    Model (Karrer and Newman, 2011), with two weights a node: u and v meet Poisson(λ_uv) times,
    λ_uv = s a_u a_v / A_c within block c, plus t b_u b_v / B among all. A graph has an edge once:
    its expected number of edges is Σ 1 - exp(-λ_uv), which falls behind Σ λ_uv where hubs meet.

    Args:
        blocks: the block of each node, 0, 1, ...  int64 [nodes]
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
        blocks: NDArray[np.int64],
        within: NDArray[np.float64],
        among: NDArray[np.float64],
        *,
        generator: np.random.Generator,
    ) -> None:
        self.within = StubMatching(blocks, within)
        self.among = StubMatching(np.zeros_like(blocks), among)
        self.generator = generator

    def plan(self, edges: int, homophily: float, *, labels: NDArray[np.int64]) -> tuple[int, int]:
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
        batches = max(1, -(-(within + among) // BATCH))
        for number in range(batches):
            for matching, count in ((self.within, within), (self.among, among)):
                size = (number + 1) * count // batches - number * count // batches
                if size:
                    yield matching.draw(size, generator=self.generator)

    def _sample_within(self, labels: NDArray[np.int64]) -> _Sample:
        """Sample the pairs of nodes of one block."""
        left, right = self.within.draw(SAMPLE, generator=self.generator)
        return self._sample(left, right, left != right, self.within, labels)

    def _sample_among(self, labels: NDArray[np.int64]) -> _Sample:
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
        labels: NDArray[np.int64],
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
