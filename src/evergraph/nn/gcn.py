"""The graph convolutional network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.graphs import Graph, normalised
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import backbones
from evergraph.nn.gnn import GNN, Convolution, Features, gather, times
from evergraph.nn.linear import Linear

AGGREGATIONS = {"normalised": "symmetric", "sum": "none"}


@backbones.register
class GCN(GNN):
    """A graph convolutional network, H ← Â H W (Kipf and Welling 2017).

    Â = D^-1/2 (A + I) D^-1/2, or A + I as in CGLB.

    Args:
        aggregation: ``normalised``, or ``sum`` for CGLB's A + I. Sums grow with the degree: on
            graphs with hubs, hidden units die and even the current task is lost.
        bias: whether layers have a bias.
        layers, hidden, dropout, fanout: see ``GNN``.
    """

    name = "gcn"

    def __init__(
        self,
        *,
        aggregation: Literal["normalised", "sum"] = "normalised",
        bias: bool = True,
        layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.0,
        fanout: Sequence[int] | None = None,
    ) -> None:
        super().__init__(layers=layers, hidden=hidden, dropout=dropout, fanout=fanout)
        check_choice("aggregation", aggregation, AGGREGATIONS)
        self.aggregation = aggregation
        self.bias = bias

    def _adjacency(self, graph: Graph) -> Tensor:
        return normalised(graph, scheme=AGGREGATIONS[self.aggregation])  # type: ignore[arg-type]

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: torch.Generator
    ) -> Convolution:
        return GraphConvolution(inputs, outputs, bias=self.bias, generator=generator)


class GraphConvolution(Convolution):
    """A graph convolution, A H Wᵀ + b."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs, bias=bias, generator=generator)

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [in, d] -> [out, width]"""
        return self.linear.plus_bias(gather(adjacency, state, self.linear.weight))

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Add outputs."""
        self.linear.grow(outputs, generator=generator)

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return ⟨W h_i, tanh(W h_j)⟩: TWP's score for layers without attention.  -> [entries]"""
        mapped = times(state, self.linear.weight)
        return adjacency.sampled(mapped, torch.tanh(mapped))
