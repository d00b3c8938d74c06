"""The paper's non-linear f_topo."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.checks import check_integer, check_number
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, propagate
from evergraph.graphs.kernels.held_rows import RowType
from evergraph.graphs.propagation import densify
from evergraph.topology.base import TopologyEncoder, topologies
from evergraph.topology.rowwise import block_product, tanh
from evergraph.topology.stepwise import Stepwise


@topologies.register
class Reservoir(Stepwise, TopologyEncoder):
    """x^i = tanh(W_I x^{i-1} + Σ_w Â W_H x_w^{i-1}), fixed random W_I, W_H (reservoir computing).

    After Gallicchio and Micheli (2020). The paper sums over neighbours; Â, without self-loops by
    default, keeps that sum from saturating the tanh where degrees are large. Weights are
    Gaussian with variance ``scale``²/width, drawn from ``seed`` alone, so that every graph of a
    stream is encoded by the same reservoir.

    Args:
        dims: width of every layer, and so of the embedding.
        scale: size of the weights; above 1 the tanh saturates.
        seed: which reservoir.
    """

    name = "reservoir"

    def __init__(
        self,
        *,
        hops: int = 2,
        dims: int = 256,
        scale: float = 1.0,
        seed: int = 0,
        self_loops: bool = False,
        rows: RowType = "float32",
    ) -> None:
        super().__init__(hops=hops, self_loops=self_loops, rows=rows)
        check_integer("dims", dims, least=1)
        check_number("scale", scale, least=0.0)
        self.dims = dims
        self.scale = scale
        self.seed = seed

    def weights(self, layer: int, width: int) -> tuple[Tensor, Tensor]:
        """Return W_I and W_H of a layer that reads ``width`` values.  2 x [width, dims]"""
        generator = seeded(self.seed, "reservoir", layer, width)
        both = torch.randn(2, width, self.dims, generator=generator) * (self.scale / width**0.5)
        return both[0], both[1]

    @property
    def separable(self) -> bool:
        """Fixed weights mix all columns."""
        return False

    @property
    def arrays(self) -> int:
        """Features, and four states in terms of their width: own, others', their sum, a product."""
        return 5

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        state = densify(graph.features)
        for layer in range(self.hops):
            own, others = (w.to(state.device) for w in self.weights(layer, state.shape[1]))
            state = propagate(adjacency, state @ others, add=state @ own).tanh_()
        return state

    def message(self, state: Tensor, *, hop: int) -> Tensor:
        """Return W_H x."""
        return block_product(state, self.weights(hop, state.shape[1])[1])

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return tanh(W_I x + Σ_w Â W_H x_w)."""
        return tanh(smoothed + block_product(state, self.weights(hop, state.shape[1])[0]))
