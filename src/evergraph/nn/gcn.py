"""Networks that aggregate by a fixed matrix (GCN, GIN, GraphSAGE), or by attention (GAT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import leaky_relu

from evergraph.core.component import choice, integer
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, normalised
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import backbones
from evergraph.nn.gnn import GNN, Convolution, Features, gather, times
from evergraph.nn.linear import Linear, uniform

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
        near = gather(adjacency, state, self.near.weight)
        return self.own.plus_bias(times(state, self.own.weight) + near)


LEAKY_SLOPE = 0.2


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class GAT(GNN):
    """A graph attention network with several heads (Veličković 2018).

    h_i ← Σ_j softmax_j(leaky(a·[W h_i, W h_j])) W h_j. The last layer has one head, whose attention
    reads the hidden states themselves: a linear function of W h is one of h, so classes can be
    added without changing it. The importance of an edge is learned: edge weights are not used.

    Args:
        heads: number of heads; each is ``hidden / heads`` wide, 8 heads of 32 by default.
    """

    name = "gat"
    sees_weights = False

    heads: int = integer(8, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.hidden, self.heads)

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: Generator
    ) -> Convolution:
        if last:
            return OutputAttention(inputs, outputs, generator=generator)
        return HeadAttention(inputs, outputs, heads=self.heads, generator=generator)


def check_heads(hidden: int, heads: int) -> None:
    """Raise unless a hidden layer can be shared equally by attention heads."""
    if hidden % heads:
        raise ConfigurationError(f"hidden must be a multiple of the {heads} heads, not {hidden!r}")


class HeadAttention(Convolution):
    """Several concatenated heads, each attending over its own part of W h."""

    def __init__(self, inputs: int, outputs: int, *, heads: int, generator: Generator) -> None:
        super().__init__()
        self.heads = heads
        self.linear = Linear(inputs, outputs, generator=generator)
        width = outputs // heads
        self.query = nn.Parameter(uniform(heads, width, inputs=width, generator=generator))
        self.key = nn.Parameter(uniform(heads, width, inputs=width, generator=generator))

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        mapped = times(state, self.linear.weight)
        scores = self._scores(adjacency, mapped)
        parts = mapped.chunk(self.heads, dim=1)
        attended = [_attend(adjacency, *pair) for pair in zip(scores, parts, strict=True)]
        return self.linear.plus_bias(torch.cat(attended, dim=1))

    def _scores(self, adjacency: SparseOperator, mapped: Tensor) -> list[Tensor]:
        """Return the attention of every edge, head by head.  [nodes, d] -> heads x [entries]"""
        vectors = torch.block_diag(*torch.stack([self.query, self.key], dim=2))  # [d, 2 · heads]
        pairs = (mapped @ vectors).t().contiguous().view(self.heads, 2, -1)
        return [_edge_scores(adjacency, queries, keys) for queries, keys in pairs]

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        return torch.stack(self._scores(adjacency, times(state, self.linear.weight)), dim=1)


class OutputAttention(Convolution):
    """One head over class scores, with attention computed from the hidden states."""

    def __init__(self, inputs: int, outputs: int, *, generator: Generator) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs, generator=generator)
        self.query = nn.Parameter(uniform(1, inputs, inputs=inputs, generator=generator))
        self.key = nn.Parameter(uniform(1, inputs, inputs=inputs, generator=generator))

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        maps = torch.cat([self.query, self.key, self.linear.weight])  # one product for all three
        queries, keys, values = times(state, maps).tensor_split((1, 2), dim=1)
        scores = _edge_scores(adjacency, queries[:, 0], keys[:, 0])
        return self.linear.plus_bias(_attend(adjacency, scores, values))

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        queries, keys = times(state, torch.cat([self.query, self.key])).unbind(1)
        return _edge_scores(adjacency, queries, keys).unsqueeze(1)


def _edge_scores(adjacency: SparseOperator, queries: Tensor, keys: Tensor) -> Tensor:
    """Return leaky(query_i + key_j) at every entry (i, j).  [nodes], [nodes] -> [entries]"""
    return leaky_relu(adjacency.added(queries, keys), LEAKY_SLOPE)


def _attend(adjacency: SparseOperator, scores: Tensor, values: Tensor) -> Tensor:
    """Return the softmax-weighted mean of values over each row.

    The denominators come from the same product, as one more column of ones; the largest score of
    each row is subtracted first, which keeps exponentials in range without changing the result.

    [entries], [nodes, d] -> [nodes, d]
    """
    rows = adjacency.rows
    largest = scores.detach().new_full((adjacency.shape[0],), -torch.inf)
    largest.scatter_reduce_(0, rows, scores.detach(), "amax")
    weights = torch.exp(scores - largest.index_select(0, rows))
    ones = values.new_ones(len(values), 1)
    sums = adjacency.weighted(weights, torch.cat([values, ones], dim=1))
    return sums[:, :-1] / sums[:, -1:]
