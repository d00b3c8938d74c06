"""GraphSAGE with mean aggregation."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs import Graph, normalised
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import backbones
from evergraph.nn.gnn import GNN, Convolution, Features, gather, times
from evergraph.nn.linear import Linear


@backbones.register
class GraphSAGE(GNN):
    """GraphSAGE with mean aggregation, H ← H W_own + D^-1 A H W_near (Hamilton 2017).

    Args:
        layers, hidden, dropout, fanout: see ``GNN``.
    """

    name = "sage"

    def _adjacency(self, graph: Graph) -> Tensor:
        return normalised(graph, self_loops=False, scheme="row")

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: torch.Generator
    ) -> Convolution:
        return MeanConvolution(inputs, outputs, generator=generator)


class MeanConvolution(Convolution):
    """A layer of GraphSAGE, W_own h_i + W_near mean_j h_j + b."""

    def __init__(self, inputs: int, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.own = Linear(inputs, outputs, generator=generator)
        self.near = Linear(inputs, outputs, bias=False, generator=generator)

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [in, d] -> [out, width]"""
        rows = adjacency.shape[0]  # the first columns
        mine = state if isinstance(state, SparseOperator) else state[:rows]
        own = times(mine, self.own.weight)[:rows]
        near = gather(adjacency, state, self.near.weight)
        return self.own.plus_bias(own + near)

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Add outputs."""
        self.own.grow(outputs, generator=generator)
        self.near.grow(outputs, generator=generator)

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return ⟨W_near h_i, tanh(W_near h_j)⟩: TWP's score without attention.  -> [entries]"""
        mapped = times(state, self.near.weight)
        return adjacency.sampled(mapped, torch.tanh(mapped))
