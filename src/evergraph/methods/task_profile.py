"""What the nodes of a task look like together, and which task a node looks like."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from evergraph.graphs import Graph, normalised, propagate, walk
from evergraph.graphs.normalisation import row_sums
from evergraph.topology import SGC

Distance = Literal["angle", "euclidean"]
DISTANCES = ("angle", "euclidean")


def profile(graph: Graph, nodes: Tensor, *, steps: int) -> Tensor:
    """Return p = 1/n Σ_v d_v^-1/2 (Â^s X)_v over some nodes.  int64 [n] -> float32 [features]

    d counts a node among its own neighbours, as Â does.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> profile(pair, torch.tensor([0, 1]), steps=1)  # smoothed to 2 and 2, d = 2
    tensor([1.4142])
    """
    smoothed = SGC(hops=steps).encode(graph)[nodes]
    return (_weights(graph, nodes) * smoothed).mean(0)


def likeness(graph: Graph, nodes: Tensor, profiles: Tensor, *, steps: int) -> Tensor:
    """Return ⟨profile of v alone, p_t⟩ for each node and task.  [tasks, features] -> [n, tasks]

    Smoothing is linear, so one column a task is smoothed instead of one a feature. The mean over
    several nodes is the likeness of their common profile.
    """
    columns = propagate(graph.features, profiles.t().contiguous())  # X pᵀ  [all nodes, tasks]
    for step in walk(normalised(graph), columns, hops=steps):
        columns = step
    return _weights(graph, nodes) * columns[nodes]


def nearest(likenesses: Tensor, profiles: Tensor, *, distance: Distance) -> Tensor:
    """Return the task whose profile is nearest.  [n, tasks], [tasks, features] -> int64 [n]

    angle: the largest ⟨x, p_t⟩ / ‖p_t‖. euclidean: the smallest ‖x - p_t‖², which is the largest
    ⟨x, p_t⟩ - ‖p_t‖² / 2.

    >>> profiles = torch.tensor([[1., 0.], [3., 3.]])
    >>> point = torch.tensor([[2., 1.]])
    >>> nearest(point @ profiles.t(), profiles, distance="angle")
    tensor([1])
    >>> nearest(point @ profiles.t(), profiles, distance="euclidean")
    tensor([0])
    """
    lengths: Tensor = profiles.norm(dim=1)
    if distance == "angle":
        return (likenesses / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)).argmax(1)
    return (likenesses - lengths.square() / 2).argmax(1)


def _weights(graph: Graph, nodes: Tensor) -> Tensor:
    """Return d_v^-1/2, d_v the sum of the weights around a node.  int64 [n] -> float32 [n, 1]"""
    return (row_sums(graph)[nodes] + 1).float().rsqrt()[:, None]
