"""Random graphs with adjustable homophily, noise and class sizes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from evergraph.core.component import Part, integer, number
from evergraph.core.errors import ConfigurationError, check_integer, check_number
from evergraph.core.seeding import seeded
from evergraph.datasets.base import Dataset, datasets
from evergraph.graphs import Graph

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

        Duplicates are dropped and drawn again, so that the count is exact. In a graph so dense that
        hubs are joined to all others, later rounds draw all nodes with equal weight.
        """
        nodes = len(self.weights)
        pairs_within = int((self.sizes * (self.sizes - 1) // 2).sum())
        possible = pairs_within if within else nodes * (nodes - 1) // 2 - pairs_within
        if count > possible:
            kind = "within classes" if within else "between classes"
            raise ConfigurationError(
                f"nodes, mean_degree and homophily require {count} edges {kind}, "
                f"but there are only {possible} pairs of nodes"
            )
        batches: list[Tensor] = []  # of pairs as sorted keys, low node * nodes + high node
        missing = count
        cumulative = self.weights.cumsum(0)
        for attempt in range(MOST_ROUNDS):
            if missing == 0:
                break
            if attempt == WEIGHTED_ROUNDS:
                cumulative = torch.arange(1, len(self.weights) + 1, dtype=torch.float64)
            open_share = (possible - count + missing) / possible
            candidates = self._pairs(int(1.1 * missing / open_share) + 16, cumulative, within)
            batches.append(self._fresh(candidates, batches, missing))
            missing -= len(batches[-1])
        if missing:
            log.warning("%d of %d edges are missing: the graph is too dense", missing, count)
        keys = torch.cat([torch.empty(0, dtype=torch.int64), *batches])
        return torch.stack([keys // nodes, keys % nodes], dim=1)

    def _fresh(self, pairs: Tensor, batches: list[Tensor], limit: int) -> Tensor:
        """Return at most ``most`` of the drawn pairs that are new, each once.  [n, 2] -> [m]"""
        low, high = pairs.min(1).values, pairs.max(1).values
        fresh: Tensor = torch.unique((low * len(self.weights) + high)[low != high])
        for keys in filter(len, batches):
            position = torch.searchsorted(keys, fresh).clamp_max_(len(keys) - 1)
            fresh = fresh[keys[position] != fresh]
        if len(fresh) <= limit:
            return fresh
        chosen = torch.randperm(len(fresh), generator=self.generator)[:limit]
        return fresh[chosen.sort().values]

    def _pairs(self, count: int, cumulative: Tensor, within: bool) -> Tensor:
        """Draw pairs with probability ∝ the product of weights.  -> int64 [count, 2]

        The first end is drawn among all nodes, the second within its class or outside it: inverse
        transform sampling on the cumulative weights, in which a class is one interval.
        """

        def uniform() -> Tensor:
            return torch.rand(count, dtype=torch.float64, generator=self.generator)

        def nodes_at(points: Tensor) -> Tensor:
            nodes = torch.searchsorted(cumulative, points, right=True)
            return nodes.clamp_max_(len(cumulative) - 1)

        tops = cumulative[self.sizes.cumsum(0) - 1]
        bottoms = torch.cat([torch.zeros(1, dtype=torch.float64), tops[:-1]])
        first = nodes_at(uniform() * cumulative[-1])
        bottom, top = bottoms[self.labels[first]], tops[self.labels[first]]
        if within:
            at = bottom + uniform() * (top - bottom)
        else:
            at = uniform() * (cumulative[-1] - (top - bottom))
            at = torch.where(at >= bottom, at + (top - bottom), at)
        pairs = torch.stack([first, nodes_at(at)], dim=1)
        # Rounding can move a point at the edge of an interval into the next class.
        same = self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]]
        return pairs[same if within else ~same]


@datasets.register
@dataclass(kw_only=True, eq=False, repr=False)
class Synthetic(Part, Dataset):
    """A random graph with adjustable size, degrees, homophily and feature noise.

    Model (Karrer and Newman, 2011): node i has a weight θ_i, and an edge between i and j is drawn
    with probability ∝ θ_i θ_j within classes and, at another rate, between them. Features are
    x_i = μ_(y_i) + noise · ε_i with unit vectors μ and standard normal ε.

    Args:
        nodes: number of nodes.
        mean_degree: mean number of neighbours.
        classes: number of classes.
        homophily: share of edges within a class, 0..1.
        features: width of the features.
        noise: standard deviation of each feature around the centre of its class.
        degree_exponent: expected degrees follow a power law with this exponent, above 2; None or 0
            gives equal expected degrees.
        class_imbalance: 0 gives equal classes; otherwise sizes fall geometrically, and the last
            class has 1 - class_imbalance times the nodes of the first.
        seed: the same seed gives the same graph.

    >>> Synthetic(nodes=200, mean_degree=6.0, classes=4, features=8).load(Path())
    Graph(nodes=200, edges=1200, features=8, classes=4)
    """

    name = "synthetic"

    nodes: int = 2000
    mean_degree: float = number(10.0, least=0.0)
    classes: int = integer(10, least=1)
    homophily: float = number(0.8, least=0.0, most=1.0)
    features: int = integer(64, least=1)
    noise: float = number(1.0, least=0.0)
    degree_exponent: float | None = 2.5
    class_imbalance: float = number(0.0, least=0.0)
    seed: int = integer(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("nodes", self.nodes, least=self.classes)
        if self.class_imbalance >= 1:
            raise ConfigurationError(f"class_imbalance must be below 1, not {self.class_imbalance}")
        if self.degree_exponent:
            check_number("degree_exponent", self.degree_exponent, least=0.0)
            if self.degree_exponent <= 2:
                message = f"degree_exponent must be above 2, or 0, not {self.degree_exponent}"
                raise ConfigurationError(message)

    def load(self, cache: Path) -> Graph:
        sizes = class_sizes(self.nodes, self.classes, self.class_imbalance)
        model = BlockModel(sizes, self._weights(), generator=seeded(self.seed, "edges"))
        edges = round(self.nodes * self.mean_degree / 2)
        within = round(self.homophily * edges)
        inside, across = model.draw(within, within=True), model.draw(edges - within, within=False)
        pairs = torch.cat([inside, across])
        # The model numbers nodes class by class; a shuffle makes numbers independent of classes.
        shuffle = torch.randperm(self.nodes, generator=seeded(self.seed, "order"))
        labels = torch.empty(self.nodes, dtype=torch.int64)
        labels[shuffle] = model.labels
        return Graph.from_edges(
            shuffle[pairs.T], features=self._features(labels), labels=labels, undirected=True
        )

    def _weights(self) -> Tensor:
        """Draw the expected degree of every node, up to a factor.  float64 [nodes]"""
        if not self.degree_exponent:
            return torch.ones(self.nodes, dtype=torch.float64)
        uniform = torch.rand(
            self.nodes, dtype=torch.float64, generator=seeded(self.seed, "degrees")
        )
        weights = (1 - uniform).pow(-1 / (self.degree_exponent - 1))
        # Beyond √(nodes · mean degree) a hub would need more edges to other hubs than one each.
        cut = weights.mean() * (self.nodes / max(self.mean_degree, 1.0)) ** 0.5
        return weights.clamp_max(float(cut))

    def _features(self, labels: Tensor) -> Tensor:
        """Draw features around the centre of each class.  [nodes] -> float32 [nodes, features]"""
        generator = seeded(self.seed, "features")
        centres = torch.randn(self.classes, self.features, generator=generator)
        centres = torch.nn.functional.normalize(centres)
        noise = torch.randn(len(labels), self.features, generator=generator)
        return noise.mul_(self.noise).add_(centres[labels])


def class_sizes(nodes: int, classes: int, imbalance: float) -> Tensor:
    """Distribute nodes over classes, at least one to each.  int64 [classes]

    >>> class_sizes(10, 4, 0.0)
    tensor([3, 2, 2, 3])
    >>> class_sizes(40, 3, 0.75)
    tensor([22, 12,  6])
    """
    shares = (1 - imbalance) ** torch.linspace(0, 1, classes, dtype=torch.float64)
    ends = (shares.cumsum(0) / shares.sum() * (nodes - classes)).round().long()
    return ends.diff(prepend=torch.zeros(1, dtype=torch.int64)) + 1
