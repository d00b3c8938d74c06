"""Networks that aggregate by a fixed matrix: GCN, GIN and GraphSAGE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from evergraph.core.component import choice
from evergraph.graphs import Graph, normalised
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import backbones
from evergraph.nn.gnn import GNN, Convolution, Features, gather, times
from evergraph.nn.linear import Linear

AGGREGATIONS = {"normalised": "symmetric", "sum": "none"}


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class GCN(GNN):
    """A graph convolutional network, H ← Â H W (Kipf and Welling 2017).

    Â = D^-1/2 (A + I) D^-1/2, or A + I as in CGLB.

    Args:
        aggregation: ``normalised``, or ``sum`` for CGLB's A + I. Sums grow with the degree: on
            graphs with hubs, hidden units die and even the current task is lost.
        bias: whether layers have a bias.
    """

    name = "gcn"

    aggregation: Literal["normalised", "sum"] = choice("normalised", AGGREGATIONS)
    bias: bool = True

    def _adjacency(self, graph: Graph) -> Tensor:
        return normalised(graph, scheme=AGGREGATIONS[self.aggregation])  # type: ignore[arg-type]

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: Generator
    ) -> Convolution:
        return GraphConvolution(inputs, outputs, bias=self.bias, generator=generator)


class GraphConvolution(Convolution):
    """A graph convolution, A H Wᵀ + b."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, generator: Generator) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs, bias=bias, generator=generator)

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [nodes, d] -> [nodes, width]"""
        return self.linear.plus_bias(gather(adjacency, state, self.linear.weight))


@backbones.register
class GIN(GNN):
    """A graph isomorphism network, H ← MLP((A + I) H), with ε = 0 (Xu et al. 2019).

    Sums grow with the degree: on graphs with hubs prefer ``gcn`` or ``sage``.
    """

    name = "gin"

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: Generator
    ) -> Convolution:
        return IsomorphismConvolution(inputs, self.hidden, outputs, generator=generator)


class IsomorphismConvolution(Convolution):
    """A layer of GIN, W₂ relu(W₁ (A + I) H)."""

    growing, scoring = ("second",), "first"

    def __init__(self, inputs: int, width: int, outputs: int, *, generator: Generator) -> None:
        super().__init__()
        self.first = Linear(inputs, width, generator=generator)
        self.second = Linear(width, outputs, generator=generator)

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [nodes, d] -> [nodes, width]"""
        summed = self.first.plus_bias(gather(adjacency, state, self.first.weight))
        scores: Tensor = self.second(torch.relu_(summed))
        return scores


@backbones.register
class GraphSAGE(GNN):
    """GraphSAGE with mean aggregation, H ← H W_own + D^-1 A H W_near (Hamilton 2017)."""

    name = "sage"

    def _adjacency(self, graph: Graph) -> Tensor:
        return normalised(graph, self_loops=False, scheme="row")

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: Generator
    ) -> Convolution:
        return MeanConvolution(inputs, outputs, generator=generator)


class MeanConvolution(Convolution):
    """A layer of GraphSAGE, W_own h_i + W_near mean_j h_j + b."""

    growing, scoring = ("own", "near"), "near"

    def __init__(self, inputs: int, outputs: int, *, generator: Generator) -> None:
        super().__init__()
        self.own = Linear(inputs, outputs, generator=generator)
        self.near = Linear(inputs, outputs, bias=False, generator=generator)

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [nodes, d] -> [nodes, width]"""
        near = gather(adjacency, state, self.near.weight)
        return self.own.plus_bias(times(state, self.own.weight) + near)
