"""What lies around a node, to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.core.checks import check_integer

if TYPE_CHECKING:
    from evergraph.online.growing_graph import GrowingGraph


@dataclass(frozen=True, eq=False)
class Ego:
    """A node's surroundings.

    Attributes:
        nodes: positions, the nearest first, the node itself at the head.  int64 [nodes]
        distances: how many hops away each is.  int64 [nodes]
        edges: sources and targets among them; an edge that runs both ways once.  int64 [2, edges]
        whole: whether these are all within reach, so that none was left out for the limit.
    """

    nodes: Tensor
    distances: Tensor
    edges: Tensor
    whole: bool


def ego(graph: GrowingGraph, node: int, *, hops: int, limit: int) -> Ego:
    """Return the nodes that features flow to a node from within ``hops``, at most ``limit``.

    Nearer ones are taken first, of equally near ones those that came first.

    >>> from evergraph.online.growing_graph import GrowingGraph
    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> near = ego(path, 1, hops=1, limit=2)
    >>> near.nodes.tolist(), near.edges.tolist(), near.whole
    ([1, 0], [[0], [1]], False)
    """
    check_integer("hops", hops, least=0)
    check_integer("limit", limit, least=1)
    layers, count, whole = [np.array([node])], 1, True
    for _ in range(hops):
        near = graph.rows(torch.from_numpy(layers[-1]))[1].astype(np.int64)
        fresh = np.setdiff1d(near, np.concatenate(layers))
        whole = whole and count + len(fresh) <= limit
        layers.append(fresh[: limit - count])
        count += len(layers[-1])
    nodes = torch.from_numpy(np.concatenate(layers))
    distances = torch.from_numpy(np.repeat(np.arange(len(layers)), [len(x) for x in layers]))
    return Ego(nodes, distances, _edges_among(graph, nodes), whole)


def _edges_among(graph: GrowingGraph, nodes: Tensor) -> Tensor:
    """Return the edges between some nodes.  int64 [2, edges]"""
    indptr, sources = graph.rows(nodes)
    targets = np.repeat(nodes.numpy(), np.diff(indptr))
    kept = np.isin(sources, nodes.numpy())
    if graph.undirected:
        kept &= sources < targets
    return torch.from_numpy(np.stack([sources[kept].astype(np.int64), targets[kept]]))
