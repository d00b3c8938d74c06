"""Strategy S2 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from evergraph.graphs import Graph, Smoother, walk
from evergraph.graphs.csr import densify
from evergraph.topology.base import TeleportingEncoder, topologies
from evergraph.topology.stepwise import Stepwise


@topologies.register
class S2GC(Stepwise, TeleportingEncoder):
    """S2: E = 1/L Σ_{l=1..L} ((1-α) Â^l + α I) X (simple spectral graph convolution, Zhu 2020).

    With ``hops=0`` there is no term to average, and E = X.
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
