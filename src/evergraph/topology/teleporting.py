"""Strategies S2 and S3 of the paper, and APPNP, which mix a share of own features back in."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from evergraph.graphs import Graph, Smoother, propagate, walk
from evergraph.graphs.csr import densify
from evergraph.topology.base import Stepwise, TeleportingEncoder, topologies


@topologies.register
class S2GC(Stepwise, TeleportingEncoder):
    """Averages the hops, mixed with own features (S2; simple spectral graph convolution, Zhu 2020).

    E = 1/L Σ_{l=1..L} ((1-α) Â^l + α I) X. With ``hops=0`` there is no term to average, and E = X.
    """

    name = "s2gc"
    linear = True

    @property
    def arrays(self) -> int:
        """Features, their sum over hops, and a hop made from the one before."""
        return 4

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        features = densify(graph.features)
        if self.hops == 0:
            return features
        total = self.alpha * features
        for step in walk(adjacency, graph.features, hops=self.hops):
            total.add_(densify(step), alpha=(1 - self.alpha) / self.hops)
        return total

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        """Return α X + (1-α)/L Σ_l H_l, each product and sum rounded by itself."""
        if self.hops == 0:
            return states[0]
        total = states[0] * self.alpha
        for state in states[1:]:
            total += state * ((1 - self.alpha) / self.hops)
        return total


@topologies.register
class APPNP(Stepwise, TeleportingEncoder):
    """Propagates with restart at a node's own features (Klicpera et al. 2019).

    E = Z_L with Z_0 = X, Z_l = (1-α) Â Z_{l-1} + α X. The released code runs this for the paper's
    S3 (``ppr``).
    """

    name = "appnp"
    linear = True

    @property
    def arrays(self) -> int:
        """Features, a hop, the one before, and the term added to it."""
        return 4

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        features = densify(graph.features)
        embeddings = features
        for _ in range(self.hops):
            embeddings = propagate(
                adjacency, embeddings, add=features, scale=1 - self.alpha, add_scale=self.alpha
            )
        return embeddings

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return (1-α) Â Z + α X, each product and sum rounded by itself."""
        return smoothed * (1 - self.alpha) + features * self.alpha


@topologies.register
class PPR(Stepwise, TeleportingEncoder):
    """Smooths by a lazy walk that stays at a node with probability α (S3): ((1-α) Â + α I)^L X.

    The released code runs APPNP's recursion under this name, which is another matrix: see
    ``appnp``.
    """

    name = "ppr"
    linear = True

    @property
    def arrays(self) -> int:
        """Features, a hop, the one before, and the term added to it."""
        return 4

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        embeddings = densify(graph.features)
        for _ in range(self.hops):
            embeddings = propagate(
                adjacency, embeddings, add=embeddings, scale=1 - self.alpha, add_scale=self.alpha
            )
        return embeddings

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return (1-α) Â H + α H, each product and sum rounded by itself."""
        return smoothed * (1 - self.alpha) + state * self.alpha
