"""A growing graph after one delta, readable while later deltas change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.online.graph.growing_array import FrozenRows, Link, as_of
from evergraph.online.graph.neighbour_lists import Lists, places_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ego:
    """The ego-subnetwork of a node.

    Attributes:
        nodes: positions, the node itself first, then the nearest.  int64 [nodes]
        distances: in hops.  int64 [nodes]
        edges: sources and targets among them; an undirected edge once.  int64 [2, edges]
        whole: whether no node was left out because of the limit.
        weights: of these edges, None if all weigh 1.  float32 [edges]
    """

    nodes: Tensor
    distances: Tensor
    edges: Tensor
    whole: bool
    weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class FrozenLists:
    """Neighbour lists at one moment; lists that change later are written elsewhere.

    Attributes:
        lists: their storage.
        link: the last saved location at that moment.
    """

    lists: Lists
    link: Link

    @property
    def weighted(self) -> bool:
        """Whether an entry weighs anything but 1."""
        return self.lists.weights is not None

    def rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return some rows as CSR, with weights.

        -> int64 [rows + 1], int32 [entries], float32 [entries]
        """
        now = np.stack([self.lists.starts[rows], self.lists.counts[rows]], axis=1)
        starts, counts = as_of(self.link, rows, now).T
        places = places_of(starts, counts)
        weights = self.lists.weights
        return (
            np.concatenate([[0], np.cumsum(counts)]),
            self.lists.pool[places],
            np.ones(len(places), np.float32) if weights is None else weights[places],
        )


@dataclass(frozen=True, eq=False)
class FrozenGraph:
    """Nodes and their in-neighbours at one moment; see ``GrowingGraph``.

    Attributes:
        lists: in-neighbours.
        features: of all positions.
        alive: which positions hold a node.
        undirected: whether edges are undirected.

    >>> from evergraph.online.graph.growing_graph import GrowingGraph
    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> then = path.frozen()
    >>> _ = path.remove(torch.tensor([0]))
    >>> near = then.ego(1, hops=1, limit=2)
    >>> near.nodes.tolist(), near.edges.tolist(), near.whole
    ([1, 0], [[0], [1]], False)
    """

    lists: FrozenLists
    features: FrozenRows
    alive: FrozenRows
    undirected: bool

    @property
    def num_nodes(self) -> int:
        """How many positions there are, including those of removed nodes."""
        return self.alive.length

    @property
    def weighted(self) -> bool:
        """Whether an edge has ever weighed anything but 1."""
        return self.lists.weighted

    def rows(self, nodes: Tensor) -> tuple[Array, Array]:
        """Return in-neighbours of nodes as CSR.  -> int64 [nodes + 1], int32 [entries]"""
        return self.lists.rows(nodes.numpy())[:2]

    def weights(self, nodes: Tensor) -> Array:
        """Return the weights of what ``rows`` returns, in its order.  float32 [entries]"""
        return self.lists.rows(nodes.numpy())[2]

    def ego(self, node: int, *, hops: int, limit: int) -> Ego:
        """Return at most ``limit`` nodes whose features reach a node within ``hops``.

        Nearer nodes are taken first, and among equally near ones those that came first.
        """
        check_integer("hops", hops, least=0)
        check_integer("limit", limit, least=1)
        layers, count, whole = [np.array([node])], 1, True
        for _ in range(hops):
            near = self.rows(torch.from_numpy(layers[-1]))[1].astype(np.int64)
            fresh = np.setdiff1d(near, np.concatenate(layers))
            whole = whole and count + len(fresh) <= limit
            layers.append(fresh[: limit - count])
            count += len(layers[-1])
        nodes = torch.from_numpy(np.concatenate(layers))
        distances = torch.from_numpy(np.repeat(np.arange(len(layers)), [len(x) for x in layers]))
        edges, weights = self._edges_among(nodes)
        return Ego(nodes, distances, edges, whole, weights if self.weighted else None)

    def _edges_among(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges between some nodes, and their weights.  int64 [2, edges], [edges]"""
        indptr, sources, weights = self.lists.rows(nodes.numpy())
        targets = np.repeat(nodes.numpy(), np.diff(indptr))
        kept = np.isin(sources, nodes.numpy())
        if self.undirected:
            kept &= sources < targets
        edges = np.stack([sources[kept].astype(np.int64), targets[kept]])
        return torch.from_numpy(edges), torch.from_numpy(weights[kept])
