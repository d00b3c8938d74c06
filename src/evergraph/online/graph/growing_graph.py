"""A graph to which nodes and edges are added and from which they are removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import pointers_of
from evergraph.online.graph import neighbour_lists
from evergraph.online.graph.frozen_graph import FrozenGraph, FrozenLists
from evergraph.online.graph.growing_array import FormerRows, FrozenRows, GrowingArray
from evergraph.online.graph.neighbour_lists import (
    Entries,
    Lists,
    NeighbourLists,
    last_of_each,
    no_entries,
    transposed,
)
from evergraph.online.pieces import Pieces, whole

Array = npt.NDArray[Any]

_SOURCE = 32  # bits by which an edge's source is shifted, so that both ends make one sortable key


def no_nodes() -> Tensor:
    """Return an empty list of positions.  int64 [0]"""
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class GraphChange:
    """What a change of the graph affected; positions ascend.

    Attributes:
        new: added nodes.  int64 [new]
        touched: older nodes whose in-neighbours or their weights changed.  int64 [touched]
        removed: removed nodes.  int64 [removed]
        renewed: older nodes whose features changed.  int64 [renewed]
        entries: changed entries in the rows of touched nodes, without those of new nodes; None if
            not known.
        former: old features of renewed nodes, None if there are none.  float32 [renewed, d]
    """

    new: Tensor = field(default_factory=no_nodes)
    touched: Tensor = field(default_factory=no_nodes)
    removed: Tensor = field(default_factory=no_nodes)
    renewed: Tensor = field(default_factory=no_nodes)
    entries: Entries | None = None
    former: Tensor | None = None

    def __repr__(self) -> str:
        renewed = f", {len(self.renewed)} renewed" if len(self.renewed) else ""
        return (
            f"GraphChange({len(self.new)} new, {len(self.touched)} touched, "
            f"{len(self.removed)} removed{renewed})"
        )

    def then(self, later: GraphChange) -> GraphChange:
        """Return this change and the next, which added no nodes, as one."""
        assert not len(later.new) + len(self.removed) + len(later.removed)
        known, others = self.known_entries, later.known_entries
        assert known is not None
        assert others is not None
        first = int(self.new[0]) if len(self.new) else np.iinfo(np.int64).max
        touched = torch.cat([self.touched, later.touched]).unique()
        # Nodes renewed by either, with their features before both: the first of each counts.
        renewed = torch.cat([self.renewed, later.renewed]).numpy()
        nodes, places = np.unique(renewed, return_index=True)
        old = nodes < first
        former = [change.former for change in (self, later) if change.former is not None]
        return GraphChange(
            self.new,
            touched[touched < first],
            renewed=torch.from_numpy(nodes[old]),
            entries=known.and_(others.below(first)),
            former=torch.cat(former)[torch.from_numpy(places[old])] if former else None,
        )

    @property
    def known_entries(self) -> Entries | None:
        """Changed entries of touched nodes, if they are known; empty if no node was touched."""
        return self.entries if self.entries is not None or len(self.touched) else no_entries()


class GrowingGraph:
    """Nodes at positions 0, 1, 2, ... in order of arrival, and their in-neighbours.

    A removed node leaves a hole: its position is never used again. As in ``Graph``, an edge
    (source, target) stands in the row of its target. A change costs the length of the rows that it
    changes, whatever the size of the graph (arrays are copied to larger allocations now and then,
    at an amortised constant cost).

    Edges weigh 1 unless they are given a weight; weights are kept only if one differs from 1.

    Args:
        num_features: width of the features.
        undirected: whether edges are undirected.

    >>> graph = GrowingGraph(num_features=1)
    >>> graph.add(torch.tensor([[1.], [2.], [4.]]), torch.tensor([[0, 1], [1, 2]]))
    GraphChange(3 new, 0 touched, 0 removed)
    >>> graph.neighbours(1)
    array([0, 2], dtype=int32)
    >>> graph.remove(torch.tensor([0]))
    GraphChange(0 new, 1 touched, 1 removed)
    >>> graph.alive
    tensor([False,  True,  True])
    """

    def __init__(self, *, num_features: int, undirected: bool = True) -> None:
        check_integer("num_features", num_features, least=1)
        self.num_features = num_features
        self.undirected = undirected
        self._features = GrowingArray(num_features)
        self._alive = GrowingArray(dtype=np.bool_)
        self._marks = GrowingArray(dtype=np.int64)
        self._tally = GrowingArray(dtype=np.int32)  # all zero between changes
        self._former_features = FormerRows()
        self._former_alive = FormerRows()
        self._into = NeighbourLists()  # in-neighbours
        self._out_of = self._into if undirected else NeighbourLists()  # out-neighbours

    def __repr__(self) -> str:
        return f"GrowingGraph(nodes={int(self.alive.sum())}, edges={self.num_edges})"

    @property
    def num_nodes(self) -> int:
        """How many positions there are, including those of removed nodes."""
        return len(self._alive)

    @property
    def num_edges(self) -> int:
        """How many directed entries the adjacency holds, as in ``Graph``."""
        return self._into.num_entries

    @property
    def compiled(self) -> bool:
        """Whether updates use compiled code; see ``neighbour_lists.is_compiled``."""
        return neighbour_lists.is_compiled(self.num_edges)

    @property
    def entry_bytes(self) -> int:
        """How many bytes the entries of the adjacency take, in both directions."""
        return (1 if self.undirected else 2) * self._into.entry_bytes

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
        return self._into.weighted

    def add(self, features: Tensor, edges: Tensor, weights: Tensor | None = None) -> GraphChange:
        """Add nodes, and edges between any nodes, new or old.

        Duplicates, self-loops and known edges are skipped. With weights, a known edge gets its new
        weight, the last of a repeated edge counts, and an edge of weight 0 is removed.

        features: [new, d], empty to add edges only; edges: integer [2, m] of sources and targets;
        weights: float32 [m], at least 0. The caller has validated them, see ``check_delta``.
        """
        assert features.shape[1] == self.num_features, "features are as wide as those of the graph"
        old = self.num_nodes
        for array in (self._features, self._alive, self._marks, self._tally):
            array.extend(len(features))
        for lists in {self._into, self._out_of}:  # one if undirected
            lists.extend(len(features))
        self.features[old:] = features
        self._alive.array[old:] = True
        distinct = edges[0] != edges[1]
        pairs = self._both_ways(edges[:, distinct])
        if weights is None:
            changed = self._join(pairs)
        else:
            weighed = weights[distinct].numpy()
            if self.undirected:  # each edge next to its reverse, so that the last of both counts
                pairs = pairs.reshape(2, 2, -1).swapaxes(1, 2).reshape(2, -1)
                weighed = np.repeat(weighed, 2)
            keys, weighed = last_of_each((pairs[0] << _SOURCE) | pairs[1], weighed)
            pairs, stays = np.stack([keys >> _SOURCE, keys & (2**_SOURCE - 1)]), weighed > 0
            changed = self._join(pairs[:, stays], weighed[stays])
            changed = changed.and_(self._part(pairs[:, ~stays]))  # edges of weight 0
        owners = changed.owners
        touched = torch.from_numpy(owners[owners < old])
        return GraphChange(torch.arange(old, self.num_nodes), touched, entries=changed.below(old))

    def _both_ways(self, edges: Tensor) -> Array:
        """Return edges, followed by all reversed edges if the graph is undirected.  [2, n]"""
        pairs: Array = edges.numpy()
        return np.concatenate([pairs, pairs[::-1]], axis=1) if self.undirected else pairs

    def _join(self, pairs: Array, weights: Array | None = None) -> Entries:
        """Insert edges, and return what has changed."""
        if not self.undirected:
            self._out_of.insert(pairs[0], pairs[1], weights)
        return self._into.insert(pairs[1], pairs[0], weights)

    def _part(self, pairs: Array) -> Entries:
        """Delete edges, and return what has changed."""
        if not self.undirected:
            self._out_of.delete(pairs[0], pairs[1])
        return self._into.delete(pairs[1], pairs[0])

    def disconnect(self, edges: Tensor) -> GraphChange:
        """Remove edges; missing ones are skipped.  int64 [2, m]

        >>> path = GrowingGraph(num_features=1)
        >>> _ = path.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> path.disconnect(torch.tensor([[2], [1]]))
        GraphChange(0 new, 2 touched, 0 removed)
        >>> path.neighbours(1)
        array([0], dtype=int32)
        """
        entries = self._part(self._both_ways(edges))
        return GraphChange(touched=torch.from_numpy(entries.owners), entries=entries)

    def renew(self, nodes: Tensor, features: Tensor) -> GraphChange:
        """Replace the features of nodes.  int64 [n], each once; [n, d]"""
        nodes, order = nodes.sort()
        former, features = self.features[nodes], features[order]
        other = (former != features).any(1)
        self._former_features.note(nodes.numpy(), former.numpy())
        self.features[nodes] = features
        return GraphChange(renewed=nodes[other], entries=no_entries(), former=former[other])

    def remove(self, nodes: Tensor) -> GraphChange:
        """Remove nodes with all their edges, and erase their features."""
        gone = torch.unique(nodes).numpy()
        changed = self._out_of.rows(gone)[1].astype(np.int64)
        ways = [(self._out_of, self._into), (self._into, self._out_of)]
        for listed, other in ways[: 1 if self.undirected else 2]:
            indptr, near = listed.rows(gone)
            other.delete(near, np.repeat(gone, np.diff(indptr)))
        for lists in (self._into, self._out_of):
            lists.clear(gone)
        self._former_features.note(gone, self._features.array[gone])
        self._former_alive.note(gone, self._alive.array[gone])
        self._features.array[gone] = 0
        self._alive.array[gone] = False
        touched = torch.from_numpy(np.setdiff1d(changed, gone))
        return GraphChange(touched=touched, removed=torch.from_numpy(gone))

    def neighbours(self, node: int) -> Array:
        """Return the in-neighbours of a node, ascending.  int32 [degree]"""
        return self.rows(torch.tensor([node]))[1]

    def rows(self, nodes: Tensor) -> tuple[Array, Array]:
        """Return in-neighbours of nodes as CSR.  -> int64 [nodes + 1], int32 [entries]"""
        return self._into.rows(nodes.numpy())

    def weights(self, nodes: Tensor) -> Array:
        """Return the weights of what ``rows`` returns, in its order.  float32 [entries]"""
        return self._into.weights(nodes.numpy())

    def weights_of(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return the weights of edges, 0 for missing ones.  [m], [m] -> float32 [m]

        >>> pair = GrowingGraph(num_features=1)
        >>> _ = pair.add(torch.zeros(3, 1), torch.tensor([[0], [1]]), torch.tensor([2.5]))
        >>> pair.weights_of(torch.tensor([1, 0, -1]), torch.tensor([0, 2, 1]))
        tensor([2.5000, 0.0000, 0.0000])
        """
        there = (sources >= 0) & (targets >= 0)
        found = torch.zeros(len(sources))
        weights = self._into.weigh(targets[there].numpy(), sources[there].numpy())
        found[there] = torch.from_numpy(weights)
        return found

    def lists(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Return which edges exist; a negative position is no node.  [m], [m] -> bool [m]

        >>> path = GrowingGraph(num_features=1, undirected=False)
        >>> _ = path.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> path.lists(torch.tensor([0, 1, -1]), torch.tensor([1, 0, 2]))
        tensor([ True, False, False])
        """
        listed = (sources >= 0) & (targets >= 0)
        found = self._into.lists(targets[listed].numpy(), sources[listed].numpy())
        listed[listed.clone()] = torch.from_numpy(found)
        return listed

    def edges(self) -> Tensor:
        """Return all entries, sources above targets.  int64 [2, entries]"""
        indptr, sources = self._into.rows(np.arange(self.num_nodes))
        targets = np.repeat(np.arange(self.num_nodes), np.diff(indptr))
        return torch.from_numpy(np.stack([sources, targets]).astype(np.int64))

    def degrees(self, nodes: Tensor) -> Tensor:
        """Return the in-degrees of nodes.  int64 [nodes]"""
        return torch.from_numpy(self._into.lengths(nodes.numpy()))

    def strengths(self, nodes: Tensor) -> Tensor:
        """Return the weighted in-degrees of nodes.  float64 [nodes]

        Weights are added one by one in the order of the entries, so that bits do not depend on the
        other rows.
        """
        indptr, _ = self.rows(nodes)
        owners = np.repeat(np.arange(len(nodes)), np.diff(indptr))
        sums = np.bincount(owners, weights=self.weights(nodes), minlength=len(nodes))
        return torch.from_numpy(sums)

    def gatherers(self, nodes: Tensor) -> Tensor:
        """Return nodes and their out-neighbours, ascending, each once.  int64 [found]

        >>> arrows = GrowingGraph(num_features=1, undirected=False)
        >>> _ = arrows.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> arrows.gatherers(torch.tensor([1]))
        tensor([1, 2])
        """
        _, near = self._out_of.rows(nodes.numpy())
        return torch.from_numpy(self.distinct(np.concatenate([nodes.numpy(), near])))

    def distinct(self, met: Array) -> Array:
        """Return positions ascending, each once.  int64 [n] -> int64 [distinct]"""
        # Each position is marked with the index of its last occurrence and kept only there, so that
        # duplicates need not be sorted.
        indices = np.arange(len(met))
        self._marks.array[met] = indices
        found: Array = np.sort(met[self._marks.array[met] == indices])
        return found

    def giving(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Return out-neighbours of nodes with weights, as CSR.

        -> int64 [nodes + 1], int32 [entries], float32 [entries]
        """
        return *self._out_of.rows(nodes), self._out_of.weights(nodes)

    def num_gatherers(self, nodes: Tensor) -> int:
        """Return the sum of the out-degrees of nodes."""
        return int(self._out_of.lengths(nodes.numpy()).sum())

    @property
    def gathering(self) -> Lists:
        """Storage of the in-neighbours, for compiled code."""
        return self._into.lying()

    @property
    def gathered(self) -> Lists:
        """Storage of the out-neighbours, for compiled code."""
        return self._out_of.lying()

    @property
    def tally(self) -> Array:
        """A zero per position, as scratch for code that resets it to zero.  int32 [num_nodes]"""
        return self._tally.array

    def frozen(self) -> FrozenGraph:
        """Return the current graph, readable while it changes."""
        return FrozenGraph(
            FrozenLists(self._into.shared(), self._into.former.now),
            FrozenRows(self._features, self._former_features.now, self.num_nodes),
            FrozenRows(self._alive, self._former_alive.now, self.num_nodes),
            self.undirected,
        )

    def induced(self, nodes: Tensor) -> Graph:
        """Return the graph of some nodes and the edges among them, renumbered in order.

        nodes: positions, ascending.  int64 [nodes]

        >>> path = GrowingGraph(num_features=1)
        >>> _ = path.add(torch.zeros(4, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> path.induced(torch.tensor([1, 2])).indices
        tensor([1, 0], dtype=torch.int32)
        """
        wanted = nodes.numpy()
        indptr, columns = self.rows(nodes)
        owners = np.repeat(np.arange(len(nodes)), np.diff(indptr))
        places = np.searchsorted(wanted, columns)
        inside = places < len(nodes)
        inside[inside] = wanted[places[inside]] == columns[inside]
        counts = np.bincount(owners[inside], minlength=len(nodes))
        return Graph(
            pointers_of(torch.from_numpy(counts)),
            torch.from_numpy(places[inside].astype(np.int32)),
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
        """Return everything kept, by name; equal graphs have equal states."""
        return whole(self.pieces())

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return the same, neighbour lists in pieces."""
        return {
            "features": self._features.state(),
            "alive": self._alive.state(),
            **self._into.pieces(),
        }

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield from (self._features, self._alive, self._marks)
        yield from self._into.arrays()
        if not self.undirected:
            yield from self._out_of.arrays()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._features.restore(state["features"])
        self._alive.restore(state["alive"])
        self._marks.restore(torch.zeros(len(state["alive"]), dtype=torch.int64))
        self._tally.restore(torch.zeros(len(state["alive"]), dtype=torch.int32))
        self._into.restore(state)
        if not self.undirected:
            self._out_of.restore(transposed(state))
