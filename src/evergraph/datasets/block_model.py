"""Distinct pairs of nodes from a degree-corrected stochastic block model, drawn edge by edge."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError

log = logging.getLogger(__name__)

WEIGHTED_ROUNDS = 8
MOST_ROUNDS = 200


class BlockModel:
    """Nodes in classes, numbered class by class, each with a weight.

    sizes: int64 [classes]; weights: float64 [nodes], above 0.
    """

    def __init__(self, sizes: Tensor, weights: Tensor, *, generator: torch.Generator) -> None:
        self.sizes = sizes
        self.weights = weights
        self.generator = generator
        self.labels = torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def draw(self, count: int, *, within: bool) -> Tensor:
        """Draw distinct pairs of nodes of one class, or of two.  -> int64 [count, 2]

        Doubles are dropped and drawn again, so that the count is met exactly. In a graph so dense
        that hubs have met everybody, later rounds draw all nodes with equal weight.
        """
        possible = self._check_room(count, within)
        batches: list[Tensor] = []  # of pairs as sorted keys, low node * nodes + high node
        missing, cumulative = count, self.weights.cumsum(0)
        for attempt in range(MOST_ROUNDS):
            if missing == 0:
                break
            if attempt == WEIGHTED_ROUNDS:
                cumulative = torch.arange(1, len(self.weights) + 1, dtype=torch.float64)
            open_share = (possible - count + missing) / possible
            drawn = self._pairs(int(1.1 * missing / open_share) + 16, cumulative, within)
            batches.append(self._fresh(drawn, batches, missing))
            missing -= len(batches[-1])
        if missing:
            log.warning("%d of %d edges are missing: the graph is too dense", missing, count)
        keys, nodes = torch.cat([torch.empty(0, dtype=torch.int64), *batches]), len(self.weights)
        return torch.stack([keys // nodes, keys % nodes], dim=1)

    def _fresh(self, drawn: Tensor, batches: list[Tensor], most: int) -> Tensor:
        """Return the drawn pairs that are new, each once, ``most`` of them.  [n, 2] -> [m]"""
        low, high = drawn.min(1).values, drawn.max(1).values
        fresh: Tensor = torch.unique((low * len(self.weights) + high)[low != high])
        for keys in filter(len, batches):
            place = torch.searchsorted(keys, fresh).clamp_max_(len(keys) - 1)
            fresh = fresh[keys[place] != fresh]
        if len(fresh) <= most:
            return fresh
        chosen = torch.randperm(len(fresh), generator=self.generator)[:most]
        return fresh[chosen.sort().values]

    def _pairs(self, count: int, cumulative: Tensor, within: bool) -> Tensor:
        """Draw pairs with probability ∝ the product of weights.  -> int64 [count, 2]

        The first end is drawn among all nodes, the second among its class or among all others:
        inverse transform sampling on the cumulated weights, in which a class is one interval.
        """
        ends = self.sizes.cumsum(0)
        tops = cumulative[ends - 1]
        bottoms = torch.cat([torch.zeros(1, dtype=torch.float64), tops[:-1]])
        first = self._nodes_at(self._uniform(count) * cumulative[-1], cumulative)
        bottom, top = bottoms[self.labels[first]], tops[self.labels[first]]
        if within:
            at = bottom + self._uniform(count) * (top - bottom)
        else:
            at = self._uniform(count) * (cumulative[-1] - (top - bottom))
            at = torch.where(at >= bottom, at + (top - bottom), at)
        pairs = torch.stack([first, self._nodes_at(at, cumulative)], dim=1)
        # Rounding can put a point at the edge of an interval into the next class.
        same = self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]]
        return pairs[same if within else ~same]

    def _nodes_at(self, points: Tensor, cumulative: Tensor) -> Tensor:
        return torch.searchsorted(cumulative, points, right=True).clamp_max_(len(cumulative) - 1)

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, dtype=torch.float64, generator=self.generator)

    def _check_room(self, count: int, within: bool) -> int:
        """Return how many pairs there are, if there are enough of them."""
        nodes = len(self.weights)
        inside = int((self.sizes * (self.sizes - 1) // 2).sum())
        possible = inside if within else nodes * (nodes - 1) // 2 - inside
        if count > possible:
            kind = "within classes" if within else "between classes"
            raise ConfigurationError(
                f"nodes, mean_degree and homophily ask for {count} edges {kind}, "
                f"but only {possible} pairs of nodes can have one"
            )
        return possible
