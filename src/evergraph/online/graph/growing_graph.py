"""A graph to which nodes and edges are added and from which they are removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import check_integer
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import pointers_of
from evergraph.online.arrays import Array, GrowingArray, KeptArrays, Packing, must
from evergraph.online.graph import neighbour_lists
from evergraph.online.graph.neighbour_lists import NeighbourLists, distinct, is_at


def no_nodes() -> Tensor:
    """Return an empty list of positions.  int64 [0]"""
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class GraphChange:
    """What a change of the graph affected; positions ascend."""

    new: Tensor = field(default_factory=no_nodes)  # added nodes
    touched: Tensor = field(default_factory=no_nodes)  # older: in-neighbours or weights changed
    removed: Tensor = field(default_factory=no_nodes)
    renewed: Tensor = field(default_factory=no_nodes)  # older nodes whose features changed

    def then(self, later: GraphChange) -> GraphChange:
        """Return this change and the next, which added no nodes, as one."""
        assert not len(later.new) + len(self.removed) + len(later.removed)
        touched = torch.cat([self.touched, later.touched]).unique()
        renewed = torch.cat([self.renewed, later.renewed]).unique()
        if len(self.new):  # which need not be named twice
            touched = touched[touched < self.new[0]]
            renewed = renewed[renewed < self.new[0]]
        return GraphChange(self.new, touched, renewed=renewed)


class Ego(NamedTuple):
    """The ego-subnetwork of a node."""

    nodes: Tensor  # positions, the node itself first, then the nearest.  int64 [nodes]
    distances: Tensor  # in hops.  int64 [nodes]
    edges: Tensor  # sources and targets among them; an undirected edge once.  int64 [2, edges]
    whole: bool  # whether no node was left out because of the limit
    weights: Tensor | None  # of these edges, None if all weigh 1.  float32 [edges]


class GrowingGraph(KeptArrays):
    """Nodes at positions 0, 1, 2, ... in order of arrival, and their in-neighbours.

    A removed node leaves a hole: its position is never used again. As in ``Graph``, an edge
    (source, target) stands in the row of its target. A change costs the length of the rows that it
    changes, whatever the size of the graph. Edges weigh 1 unless they are given a weight.

    Attributes:
        into: in-neighbours of every node.
        out_of: out-neighbours, the same lists if edges are undirected.

    >>> graph = GrowingGraph(num_features=1)
    >>> change = graph.add(torch.tensor([[1.], [2.], [4.]]), torch.tensor([[0, 1], [1, 2]]))
    >>> graph.rows(torch.tensor([1]))[1]
    array([0, 2], dtype=int32)
    >>> graph.remove(torch.tensor([0])).touched
    tensor([1])
    >>> graph.alive
    tensor([False,  True,  True])
    """

    def __init__(self, *, num_features: int, undirected: bool = True) -> None:
        check_integer("num_features", num_features, least=1)
        self.num_features = num_features
        self.undirected = undirected
        self._features = GrowingArray(num_features)
        self._alive = GrowingArray(dtype=np.bool_)
        self.kept = {"features": self._features, "alive": self._alive}
        self.into = NeighbourLists()
        self.out_of = self.into if undirected else NeighbourLists()
        self._both = (self.into,) if undirected else (self.into, self.out_of)

    @property
    def num_nodes(self) -> int:
        """How many positions there are, including those of removed nodes."""
        return len(self._alive)

    @property
    def num_edges(self) -> int:
        """How many directed entries the adjacency holds, as in ``Graph``."""
        return self.into.num_entries

    @property
    def is_featureless(self) -> bool:
        """Whether all nodes have one feature, 1: that of nodes that came without any."""
        return self.num_features == 1 and bool((self.features[self.alive] == 1).all())

    @property
    def compiled(self) -> bool:
        """Whether rows are summed by compiled code; see ``neighbour_lists.is_compiled``."""
        return neighbour_lists.is_compiled(self.num_edges)

    @property
    def entry_bytes(self) -> int:
        """How many bytes the entries of the adjacency take, in both directions."""
        return len(self._both) * self.into.entry_bytes

    @property
    def alive(self) -> Tensor:
        """Which positions hold a node.  bool [num_nodes], a view until the graph grows"""
        return self._alive.tensor

    @property
    def features(self) -> Tensor:
        """Of all positions, 0 for removed.  float32 [num_nodes, d], a view until the graph grows"""
        return self._features.tensor

    @property
    def weighted(self) -> bool:
        """Whether an edge has ever weighed anything but 1."""
        return self.into.weighted

    def add(self, features: Tensor, edges: Tensor, weights: Tensor | None = None) -> GraphChange:
        """Add nodes, and edges between any nodes, new or old, which ``check_delta`` has validated.

        Duplicates, self-loops and known edges are skipped. With weights, a known edge gets its new
        weight, the last of a repeated edge counts, and an edge of weight 0 is removed.

        features: [new, d]; edges: sources and targets, integer [2, m]; weights: float32 [m]
        """
        assert features.shape[1] == self.num_features, "features are as wide as those of the graph"
        old = self.num_nodes
        if len(features):
            self._features.append(features)
            self._alive.append(np.ones(len(features), np.bool_))
            for lists in self._both:
                lists.extend(len(features))
        proper = edges[0] != edges[1]
        sources, targets = pairs = self._both_ways(edges[:, proper])
        weighed = None if weights is None else weights[proper].numpy()
        if weighed is not None and self.undirected:
            # Each edge next to its reverse, so that the last weight of both counts.
            sources, targets = pairs.reshape(2, 2, -1).swapaxes(1, 2).reshape(2, -1)
            weighed = np.repeat(weighed, 2)
        if not self.undirected:
            self.out_of.insert(sources, targets, weighed)
        changed = self.into.insert(targets, sources, weighed)
        return GraphChange(
            new=torch.arange(old, self.num_nodes), touched=torch.from_numpy(changed[changed < old])
        )

    def _both_ways(self, edges: Tensor) -> Array:
        """Return edges, followed by all reversed edges if the graph is undirected.  [2, n]"""
        pairs: Array = edges.numpy()
        return np.concatenate([pairs, pairs[::-1]], axis=1) if self.undirected else pairs

    def disconnect(self, edges: Tensor) -> GraphChange:
        """Remove edges; missing ones are skipped.  int64 [2, m]"""
        sources, targets = self._both_ways(edges)
        if not self.undirected:
            self.out_of.delete(sources, targets)
        return GraphChange(touched=torch.from_numpy(self.into.delete(targets, sources)))

    def renew(self, nodes: Tensor, features: Tensor) -> GraphChange:
        """Replace the features of nodes.  int64 [n], each once; [n, d]"""
        former = self._features.write(nodes, features)
        return GraphChange(renewed=nodes[(former != features).any(1)].sort().values)

    def remove(self, nodes: Tensor) -> GraphChange:
        """Remove nodes with all their edges, and erase their features."""
        nodes = nodes.unique()
        changed = self.out_of.detach(nodes.numpy(), self.into)
        if not self.undirected:
            self.into.detach(nodes.numpy(), self.out_of)
        for lists in self._both:
            lists.clear(nodes.numpy())
        self._features.write(nodes, 0)
        self._alive.write(nodes, False)
        touched = torch.from_numpy(np.setdiff1d(changed, nodes.numpy()))
        return GraphChange(touched=touched, removed=nodes)

    def rows(self, nodes: Tensor) -> tuple[Array, Array]:
        """Return in-neighbours of nodes as CSR.  -> int64 [nodes + 1], int32 [entries]"""
        return self.into.rows(nodes.numpy())

    def weights(self, nodes: Tensor) -> Array:
        """Return the weights of what ``rows`` returns, in its order.  float32 [entries]"""
        return self.into.weights(nodes.numpy())

    def weights_of(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return the weights of edges, 0 for missing ones and where a position is negative.

        int64 [m], int64 [m] -> float32 [m]
        """
        exist = (sources >= 0) & (targets >= 0)
        weights = torch.zeros(len(sources))
        known = self.into.weigh(targets[exist].numpy(), sources[exist].numpy())
        weights[exist] = torch.from_numpy(known)
        return weights

    def edges(self) -> Tensor:
        """Return all entries, sources above targets.  int64 [2, entries]"""
        indptr, sources = self.into.rows(np.arange(self.num_nodes))
        targets = np.repeat(np.arange(self.num_nodes), np.diff(indptr))
        return torch.from_numpy(np.stack([sources, targets]).astype(np.int64))

    def gatherers(self, nodes: Tensor) -> Tensor:
        """Return nodes and their out-neighbours, ascending, each once.  int64 [n]"""
        _, neighbours = self.out_of.rows(nodes.numpy())
        if len(neighbours) < self.num_nodes:
            return torch.from_numpy(distinct(np.concatenate([nodes.numpy(), neighbours])))
        reached = np.zeros(self.num_nodes, np.bool_)  # less work than sorting as many
        reached[nodes.numpy()] = True
        reached[neighbours] = True
        return torch.from_numpy(np.flatnonzero(reached))

    def ego(self, node: int, *, hops: int, limit: int) -> Ego:
        """Return at most ``limit`` nodes whose features reach a node within ``hops``.

        Nearer nodes are taken first, and among equally near ones those that came first.

        >>> path = GrowingGraph(num_features=1)
        >>> _ = path.add(torch.zeros(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> near = path.ego(1, hops=1, limit=2)
        >>> near.nodes.tolist(), near.edges.tolist(), near.whole
        ([1, 0], [[0], [1]], False)
        """
        check_integer("hops", hops, least=0)
        check_integer("limit", limit, least=1)
        layers = [np.array([node])]
        count, whole = 1, True
        for _ in range(hops):
            neighbours = self.into.rows(layers[-1])[1].astype(np.int64)
            farther = np.setdiff1d(neighbours, np.concatenate(layers))
            whole = whole and count + len(farther) <= limit
            layers.append(farther[: limit - count])
            count += len(layers[-1])
        nodes = np.concatenate(layers)
        distances = np.repeat(np.arange(len(layers)), [len(layer) for layer in layers])
        indptr, sources = self.into.rows(nodes)
        targets = np.repeat(nodes, np.diff(indptr))
        inside = np.isin(sources, nodes)
        if self.undirected:
            inside &= sources < targets
        edges = np.stack([sources[inside].astype(np.int64), targets[inside]])
        return Ego(
            torch.from_numpy(nodes),
            torch.from_numpy(distances),
            torch.from_numpy(edges),
            whole,
            torch.from_numpy(self.into.weights(nodes)[inside]) if self.weighted else None,
        )

    def induced(self, nodes: Tensor) -> Graph:
        """Return the graph of ascending nodes and the edges among them, renumbered in order."""
        wanted = nodes.numpy()
        indptr, columns = self.rows(nodes)
        owners = np.repeat(np.arange(len(nodes)), np.diff(indptr))
        indices = index_in(wanted, columns)
        inside = indices >= 0
        counts = np.bincount(owners[inside], minlength=len(nodes))
        return Graph(
            pointers_of(torch.from_numpy(counts)),
            torch.from_numpy(indices[inside].astype(np.int32)),
            self.features[nodes],
            torch.full((len(nodes),), UNLABELLED),
            undirected=self.undirected,
            weights=torch.from_numpy(self.weights(nodes)[inside]) if self.weighted else None,
        )

    def to_graph(self) -> tuple[Graph, Tensor]:
        """Return all nodes as a graph of its own, and their positions here.  int64 [nodes]"""
        nodes = self.alive.nonzero().flatten()
        return self.induced(nodes), nodes

    def state(self) -> dict[str, Tensor]:
        return super().state() | self.into.state()

    def arrays(self) -> Iterator[GrowingArray]:
        yield from super().arrays()
        for lists in self._both:
            yield from lists.arrays()

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        rows = {name: nodes.rows(array.tensor) for name, array in self.kept.items()}
        return rows | self.into.packed(nodes, classes)

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        must("features", bool(self.features.isfinite().all()), "hold finite numbers")
        rows = len(state["indptr"])
        wanted = self.num_nodes + 1
        must("indptr", rows == wanted, f"have {wanted:,} rows, not {rows:,}")
        self.into.restore(state)
        if not self.undirected:
            sources, targets = self.edges().numpy()
            weights = self.weights(torch.arange(self.num_nodes)) if self.weighted else None
            self.out_of.extend(self.num_nodes)
            self.out_of.insert(sources, targets, weights)


def index_in(known: Array, nodes: Array) -> Array:
    """Return the index of nodes among known ones, which ascend, -1 for others.  int64 [nodes]"""
    index = np.searchsorted(known, nodes)
    index[~is_at(index, nodes, known)] = -1
    return index
