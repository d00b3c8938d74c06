"""Strategy S2 of the paper."""

from __future__ import annotations

from torch import Tensor

from evergraph.graphs import Graph, Smoother, walk
from evergraph.graphs.propagation import densify
from evergraph.topology.base import TeleportingEncoder, topologies


@topologies.register
class S2GC(TeleportingEncoder):
    """S2: E = 1/L Σ_{l=1..L} ((1-α) Â^l + α I) X (simple spectral graph convolution, Zhu 2020).

    With ``hops=0`` there is no term to average, and E = X.
    """

    name = "s2gc"

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
