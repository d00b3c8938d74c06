"""The paper's non-linear f_topo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from evergraph.core.component import choice, formerly, integer, number
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, propagate
from evergraph.graphs.csr import densify
from evergraph.topology.base import Stepwise, TopologyEncoder, topologies
from evergraph.topology.rowwise import block_product, tanh

Layers = Literal["last", "all"]


@topologies.register
@formerly(rows="dtype")
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
        both = torch.randn(2, width, self.dims, generator=generator) * (self.scale / width**0.5)
        return both[0], both[1]

    @property
    def separable(self) -> bool:
        """False: the weights mix all columns."""
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
            own, others = (w.to(state.device) for w in self.weights(layer, state.shape[1]))
            add = state @ own if self.own_weights else None
            states.append(propagate(adjacency, state @ others, add=add).tanh_())
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
        """The last layer, or all of them."""
        return (self.hops,) if self.layers == "last" else range(min(self.hops, 1), self.hops + 1)

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        """Return the last state, or all states but the features concatenated."""
        if self.layers == "last" or self.hops == 0:
            return states[-1]
        return torch.cat([*states[1:]], dim=1)
