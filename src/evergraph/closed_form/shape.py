"""Degree and feature length of a node as vectors of unit length."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.graphs.csr import ROWS_AT_A_TIME, repeat, take_rows

# Two numbers half a doubling apart are similar; an eighth of a doubling apart still differ.
REACHES = (0.5, 0.125)
FREQUENCIES = 8
SHAPE_WIDTH = 2 * 2 * len(REACHES) * FREQUENCIES


def shape_of(graph: Graph, nodes: Tensor | None = None) -> Tensor:
    """Return an encoding of each node's degree and feature length.  -> float32 [nodes, SHAPE_WIDTH]

    nodes: those asked for; None for all.

    Unit vectors lose both. They help on graphs whose neighbours differ: on actor the length, so the
    number of words, adds four points. Both are on a logarithmic scale.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[3.], [3.]]),
    ...                         labels=torch.tensor([0, 1]), undirected=True)
    >>> shape_of(pair).square().sum(1)
    tensor([1., 1.])
    """
    degrees, features = graph.degrees.float(), graph.features
    if nodes is not None:
        nodes = nodes.to(graph.device)
        degrees, features = degrees[nodes], take_rows(features, nodes)
    return shape_rows(degrees.cpu(), _lengths(features))


def shape_rows(degrees: Tensor, lengths: Tensor) -> Tensor:
    """Return the encoding of degrees and feature lengths.  [n], [n] -> float32 [n, SHAPE_WIDTH]"""
    waves = [_waves(degrees + 1), _waves(lengths + 1e-6)]
    return torch.cat(waves, dim=1) / math.sqrt(2)


def _waves(values: Tensor) -> Tensor:
    """Return cos and sin of logarithms, whose inner products are Gaussian kernels.  -> [n, 32]"""
    spread = [NormalDist().inv_cdf(0.5 + (i + 0.5) / (2 * FREQUENCIES)) for i in range(FREQUENCIES)]
    rates = torch.tensor([rate / reach for reach in REACHES for rate in spread]).double()
    turned = values.double().log2()[:, None] * rates
    return (torch.cat([turned.cos(), turned.sin()], dim=1) / math.sqrt(len(rates))).float()


def _lengths(features: Tensor) -> Tensor:
    """Return the length of every row, dense, sparse or memory-mapped.  -> float64 [nodes]"""
    if features.layout != torch.strided:
        values, pointers = features.values().cpu().double(), features.crow_indices().cpu()
        owners = repeat(torch.arange(len(pointers) - 1), pointers.diff())
        total = torch.zeros(len(pointers) - 1, dtype=torch.float64)
        return total.index_add_(0, owners, values.square()).sqrt()
    return torch.cat([rows.double().norm(dim=1).cpu() for rows in features.split(ROWS_AT_A_TIME)])
