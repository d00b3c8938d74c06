"""Strategies S1 to S3 of the paper, APPNP, the identity, and its non-linear reservoir."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from evergraph.core.component import choice, integer, number
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, propagate, walk
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.topology.base import Stepwise, TopologyEncoder, topologies
from evergraph.topology.rowwise import block_product, tanh


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


class LazyEncoder(TeleportingEncoder):
    """Z_l = (1-α) Â Z_{l-1} + α Y, where Y are the features, or Z_{l-1} itself."""

    restarts: ClassVar[bool]  # whether Y are the features

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        embeddings = features = densify(graph.features)
        shares: dict[str, Any] = {"scale": 1 - self.alpha, "add_scale": self.alpha}
        for _ in range(self.hops):
            restart = features if self.restarts else embeddings
            embeddings = propagate(adjacency, embeddings, add=restart, **shares)
        return embeddings

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return (1-α) Â Z + α Y, each product and sum rounded by itself."""
        restart = features if self.restarts else state
        return smoothed * (1 - self.alpha) + restart * self.alpha


@topologies.register
class APPNP(LazyEncoder):
    """Propagates with restart at a node's own features (Klicpera et al. 2019).

    E = Z_L with Z_0 = X, Z_l = (1-α) Â Z_{l-1} + α X. The released code runs this for the paper's
    S3 (``ppr``).
    """

    name = "appnp"
    restarts = True


@topologies.register
class PPR(LazyEncoder):
    """Smooths by a lazy walk that stays at a node with probability α (S3): ((1-α) Â + α I)^L X.

    The released code runs APPNP's recursion under this name, which is another matrix: see
    ``appnp``.
    """

    name = "ppr"
    restarts = False


Layers = Literal["last", "all"]


@topologies.register
@dataclass(kw_only=True, eq=False, repr=False)
class Reservoir(Stepwise, TopologyEncoder):
    """A random network that is never trained (reservoir computing; Gallicchio and Micheli 2020).

    x^i = tanh(W_I x^{i-1} + Σ_w Â W_H x_w^{i-1}) with fixed random W_I, W_H. The paper sums over
    neighbours; Â, without self-loops by default, keeps that sum from saturating the tanh at large
    degrees. Weights are Gaussian with variance ``scale``²/width, drawn from ``seed`` alone, so that
    every graph of a stream is encoded by the same reservoir.

    Args:
        dims: width of every layer, and so of the embedding.
        scale: size of the weights; above 1 the tanh saturates.
        seed: seed of the weights.
        own_weights: whether there is W_I. Without it, and with self-loops, the reservoir is an
            untrained graph convolutional network, x^i = tanh(Â W_H x^{i-1}).
        layers: ``last`` embeds a node as x^L, ``all`` as [x^1, ..., x^L], L times as wide.
    """

    name = "reservoir"

    dims: int = integer(256, least=1)
    scale: float = number(1.0, least=0.0)
    seed: int = 0
    own_weights: bool = True
    layers: Layers = choice("last", ("last", "all"))
    self_loops: bool = False

    def weights(self, layer: int, width: int) -> tuple[Tensor, Tensor]:
        """Return W_I and W_H of a layer with ``width`` inputs.  2 x [width, dims]"""
        generator = seeded(self.seed, "reservoir", layer, width)
        matrices = torch.randn(2, width, self.dims, generator=generator) * (self.scale / width**0.5)
        return matrices[0], matrices[1]

    @property
    def separable(self) -> bool:
        return False

    @property
    def arrays(self) -> int:
        """Features, and four states relative to their width: own, others', their sum, a product.

        If all layers are kept, each of them twice in addition.
        """
        return 5 if self.layers == "last" else 5 + 2 * self.hops

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        states = [densify(graph.features)]
        for layer in range(self.hops):
            state = states[-1]
            matrices = self.weights(layer, state.shape[1])
            own_matrix, neighbour_matrix = (matrix.to(state.device) for matrix in matrices)
            add = state @ own_matrix if self.own_weights else None
            states.append(propagate(adjacency, state @ neighbour_matrix, add=add).tanh_())
            if self.layers == "last":
                states = states[-1:]
        return self.assemble(states)

    def message(self, state: Tensor, *, hop: int) -> Tensor:
        """Return W_H x."""
        return block_product(state, self.weights(hop, state.shape[1])[1])

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return tanh(W_I x + Σ_w Â W_H x_w)."""
        if not self.own_weights:
            return tanh(smoothed)
        return tanh(smoothed + block_product(state, self.weights(hop, state.shape[1])[0]))

    @property
    def assembled(self) -> Sequence[int]:
        return (self.hops,) if self.layers == "last" else range(min(self.hops, 1), self.hops + 1)

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        if self.layers == "last" or self.hops == 0:
            return states[-1]
        return torch.cat([*states[1:]], dim=1)
