"""Personalised PageRank by power iteration."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import Graph, Smoother, propagate
from evergraph.graphs.csr import densify
from evergraph.topology.base import TeleportingEncoder, topologies
from evergraph.topology.stepwise import Stepwise


@topologies.register
class APPNP(Stepwise, TeleportingEncoder):
    """E = Z_L with Z_0 = X, Z_l = (1-α) Â Z_{l-1} + α X (Klicpera et al. 2019).

    What the released code runs where the paper writes S3 (``ppr``): the walk restarts at the
    node's own features instead of resting where it is.
    """

    name = "appnp"
    linear = True

    @property
    def arrays(self) -> int:
        """Features, a hop, the one before, and what is added to it."""
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
