"""Graphs with knobs: homophily, noise, class sizes."""

from __future__ import annotations

import math
from math import inf
from pathlib import Path

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.checks import check_integer, check_number
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.generated.block_model import BlockModel
from evergraph.graphs import Graph


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


@datasets.register
class Synthetic(Dataset):
    """A random graph whose size, degrees, homophily and feature noise are knobs.

    Model (Karrer and Newman, 2011): node i has a weight θ_i, and an edge between i and j is drawn
    with probability ∝ θ_i θ_j within classes and, at another rate, between them. Features are
    x_i = μ_(y_i) + noise · ε_i with unit vectors μ and standard normal ε.

    Args:
        nodes: how many nodes.
        mean_degree: mean number of neighbours, both directions being one edge.
        classes: how many classes.
        homophily: share of edges within a class, 0..1.
        features: width of the features.
        noise: standard deviation of each feature around its class's centre.
        degree_exponent: expected degrees follow a power law with this exponent, above 2; None or 0
            makes them equal.
        class_imbalance: 0 makes classes equal; otherwise sizes fall geometrically until the last
            class has 1 - class_imbalance times the nodes of the first.
        seed: the same seed gives the same graph.

    >>> Synthetic(nodes=200, mean_degree=6.0, classes=4, features=8).load(Path())
    Graph(nodes=200, edges=1200, features=8, classes=4)
    """

    name = "synthetic"

    def __init__(
        self,
        *,
        nodes: int = 2000,
        mean_degree: float = 10.0,
        classes: int = 10,
        homophily: float = 0.8,
        features: int = 64,
        noise: float = 1.0,
        degree_exponent: float | None = 2.5,
        class_imbalance: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.nodes = nodes
        self.mean_degree = mean_degree
        self.classes = classes
        self.homophily = homophily
        self.features = features
        self.noise = noise
        self.degree_exponent = degree_exponent
        self.class_imbalance = class_imbalance
        self.seed = seed
        self._check()

    def load(self, cache: Path) -> Graph:
        """Draw the graph; nothing is kept under ``cache``."""
        sizes = class_sizes(self.nodes, self.classes, self.class_imbalance)
        model = BlockModel(sizes, self._weights(), generator=seeded(self.seed, "edges"))
        edges = round(self.nodes * self.mean_degree / 2)
        within = round(self.homophily * edges)
        pairs = torch.cat(
            [model.draw(within, within=True), model.draw(edges - within, within=False)]
        )
        # The model numbers nodes class by class; a shuffle hides the class from the number.
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
        """Draw features around one centre a class.  [nodes] -> float32 [nodes, features]"""
        generator = seeded(self.seed, "features")
        centres = torch.randn(self.classes, self.features, generator=generator)
        centres = torch.nn.functional.normalize(centres)
        noise = torch.randn(len(labels), self.features, generator=generator)
        return noise.mul_(self.noise).add_(centres[labels])

    def _check(self) -> None:
        """Raise unless every knob obeys its rule."""
        for name, least in (("classes", 1), ("nodes", self.classes), ("features", 1), ("seed", 0)):
            check_integer(name, getattr(self, name), least=least)
        for name, most in (("mean_degree", inf), ("noise", inf), ("homophily", 1.0)):
            check_number(name, getattr(self, name), least=0.0, most=most)
        check_number("class_imbalance", self.class_imbalance, least=0.0)
        if self.class_imbalance >= 1:
            raise ConfigurationError(f"class_imbalance must be below 1, not {self.class_imbalance}")
        if self.degree_exponent:
            check_number("degree_exponent", self.degree_exponent, least=0.0)
            if self.degree_exponent <= 2:
                raise ConfigurationError(
                    f"degree_exponent must be above 2, or 0, not {self.degree_exponent}"
                )


def class_sizes(nodes: int, classes: int, imbalance: float) -> Tensor:
    """Share nodes out, at least one to each class.  int64 [classes]

    >>> class_sizes(10, 4, 0.0)
    tensor([3, 2, 2, 3])
    >>> class_sizes(40, 3, 0.75)
    tensor([22, 12,  6])
    """
    shares = (1 - imbalance) ** torch.linspace(0, 1, classes, dtype=torch.float64)
    ends = (shares.cumsum(0) / shares.sum() * (nodes - classes)).round().long()
    return ends.diff(prepend=torch.zeros(1, dtype=torch.int64)) + 1
