"""Strategy S3 of the paper, as its formula is printed."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import Graph, Smoother, propagate
from evergraph.graphs.csr import densify
from evergraph.topology.base import TeleportingEncoder, topologies
from evergraph.topology.stepwise import Stepwise


@topologies.register
class PPR(Stepwise, TeleportingEncoder):
    """S3: E = ((1-α) Â + α I)^L X, a lazy walk that stays put with probability α.

    The released code runs APPNP's recursion under this name, which is another matrix: see
    ``appnp``.
    """

    name = "ppr"
    linear = True

    @property
    def arrays(self) -> int:
        """Features, a hop, the one before, and what is added to it."""
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
