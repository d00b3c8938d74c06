"""The graph isomorphism network."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs import Graph, normalised
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import backbones
from evergraph.nn.gnn import GNN, Convolution, Features, gather, times
from evergraph.nn.linear import Linear


@backbones.register
class GIN(GNN):
    """A graph isomorphism network, H ← MLP((A + I) H), with ε = 0 (Xu et al. 2019).

    Sums grow with the degree: on graphs with hubs prefer ``gcn`` or ``sage``.

    Args:
        layers, hidden, dropout, fanout: see ``GNN``.
    """

    name = "gin"

    def _adjacency(self, graph: Graph) -> Tensor:
        return normalised(graph, scheme="none")

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: torch.Generator
    ) -> Convolution:
        return IsomorphismConvolution(inputs, self.hidden, outputs, generator=generator)


class IsomorphismConvolution(Convolution):
    """A layer of GIN, W₂ relu(W₁ (A + I) H)."""

    def __init__(
        self, inputs: int, width: int, outputs: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.first = Linear(inputs, width, generator=generator)
        self.second = Linear(width, outputs, generator=generator)

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [in, d] -> [out, width]"""
        summed = self.first.plus_bias(gather(adjacency, state, self.first.weight))
        scores: Tensor = self.second(torch.relu_(summed))
        return scores

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Add outputs."""
        self.second.grow(outputs, generator=generator)

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return ⟨W₁ h_i, tanh(W₁ h_j)⟩: TWP's score for layers without attention.  -> [entries]"""
        mapped = times(state, self.first.weight)
        return adjacency.sampled(mapped, torch.tanh(mapped))
