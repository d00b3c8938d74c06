"""Strategies S1 to S3 of the paper, APPNP, and the identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from evergraph.core.component import formerly, number
from evergraph.graphs import Graph, Smoother, propagate, walk
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.topology.base import Stepwise, TopologyEncoder, topologies


@topologies.register
class SGC(Stepwise, TopologyEncoder):
    """Smooths the features L times: E = Â^L X (S1; simple graph convolution, Wu et al. 2019).

    >>> import torch
    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> SGC(hops=1).encode(pair)  # each node gets the mean of both
    tensor([[2.0000],
            [2.0000]])
    """

    name = "sgc"
    linear = True

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        embeddings = graph.features
        for step in walk(adjacency, graph.features, hops=self.hops):
            embeddings = step
        return embeddings


@topologies.register
@dataclass(kw_only=True, eq=False, repr=False)
class Identity(Stepwise, TopologyEncoder):
    """Leaves the features unchanged, E = X, to measure what topology adds.

    ``hops`` is always 0, since such an embedding covers only its own node.
    """

    name = "identity"
    linear = True

    hops: int = 0
    dtype: RowType = field(init=False, default="float32")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hops = 0

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        return graph.features


@formerly(rows="dtype")
@dataclass(kw_only=True, eq=False, repr=False)
class TeleportingEncoder(Stepwise, TopologyEncoder):
    """An f_topo that mixes a share ``alpha`` of a node's own features back in.

    Args:
        alpha: the share, between 0 (neighbours only) and 1 (own features only).
    """

    alpha: float = number(0.1, least=0.0, most=1.0)
    linear = True

    @property
    def arrays(self) -> int:
        """Features, a hop made from the one before, and the term added to it, or the sum."""
        return 4


@topologies.register
class S2GC(TeleportingEncoder):
    """Averages the hops, mixed with own features (S2; simple spectral graph convolution, Zhu 2020).

    E = 1/L Σ_{l=1..L} ((1-α) Â^l + α I) X. With ``hops=0`` there is no term to average, and E = X.
    """

    name = "s2gc"

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
class APPNP(TeleportingEncoder):
    """Propagates with restart at a node's own features (Klicpera et al. 2019).

    E = Z_L with Z_0 = X, Z_l = (1-α) Â Z_{l-1} + α X. The released code runs this for the paper's
    S3 (``ppr``).
    """

    name = "appnp"

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
class PPR(TeleportingEncoder):
    """Smooths by a lazy walk that stays at a node with probability α (S3): ((1-α) Â + α I)^L X.

    The released code runs APPNP's recursion under this name, which is another matrix: see
    ``appnp``.
    """

    name = "ppr"

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
