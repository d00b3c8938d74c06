"""A growing graph with the vectors of its nodes, and the parts of these that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.own_features import SHAPE_WIDTH, shape_rows
from evergraph.closed_form.views import CODE_HOPS
from evergraph.online.delta import Label
from evergraph.online.graph.growing_array import Array, GrowingArray, VectorPart
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph, no_nodes
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import ROWS, LiveEmbeddings
from evergraph.online.graph.live_relations import PLAIN, LiveRelations
from evergraph.online.graph.neighbour_lists import distinct

ROWS_PER_BLOCK = 512  # of features, which may be wide


class LiveRows(VectorPart):
    """Base of parts of a vector that are kept as they are."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._rows = GrowingArray(dims)
        self.kept = {"rows": self._rows}

    def rows(self, nodes: Array) -> Array:
        return self._rows.array.take(nodes, axis=0)


class LiveShape(LiveRows):
    """The shape of every node, see ``shape_of``, updated where edges or features change.

    measured: whether the plain length of a node's features stands beside it.

    >>> graph, shape = GrowingGraph(num_features=1), LiveShape()
    >>> shape.update(graph, graph.add(torch.ones(2, 1), torch.tensor([[0], [1]])))
    tensor([0, 1])
    >>> bool((shape.of(torch.tensor([0])) == shape.of(torch.tensor([1]))).all())
    True
    """

    def __init__(self, *, measured: bool = False) -> None:
        super().__init__(SHAPE_WIDTH + measured)

    def update(self, graph: GrowingGraph, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return the nodes it concerns."""
        self._rows.extend(graph.num_nodes - len(self._rows))
        self._rows.write(change.removed, 0)
        nodes: Tensor = torch.cat([change.new, change.touched, change.renewed]).unique()
        for some in nodes.split(ROWS_PER_BLOCK):
            degrees = torch.from_numpy(np.diff(graph.rows(some)[0]))
            lengths = torch.linalg.vector_norm(graph.features[some], dim=1, dtype=torch.float64)
            rows = torch.cat([shape_rows(degrees, lengths), lengths.float()[:, None]], dim=1)
            self._rows.write(some, rows[:, : self.dims])
        return nodes


class LiveWords(LiveRows):
    """The words of every node as they were given, see ``packed_words``.

    >>> words = LiveWords(2)
    >>> words.add(torch.tensor([[1.0, 7.0]]))
    >>> words.renew(torch.tensor([0]), torch.tensor([[1.0, 8.0]]))
    tensor([0])
    >>> words.of(torch.tensor([0]))
    tensor([[1., 8.]])
    """

    def add(self, rows: Tensor) -> None:
        """Add nodes.  float32 [new, width]"""
        self._rows.extend(len(rows))
        self._rows.tensor[len(self._rows) - len(rows) :] = rows

    def renew(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Replace the words of nodes; return those whose words differ.  [n], [n, width]"""
        former = self._rows.write(nodes, rows)
        return nodes[(former != rows).any(1)]

    def follow(self, change: GraphChange) -> None:
        """Erase the words of removed nodes."""
        self._rows.write(change.removed, 0)


class LiveVectors:
    """A growing graph, and a vector of every node that follows it.

    Nodes are positions here. A vector is the embedding of a node, then relations, shape, words and
    class codes, as far as there are any. Within a delta a node may move more than once: the nodes
    concerned are collected, and taken once.

    Args:
        graph, embeddings, relations, shape, words, codes: the graph, and the parts of a vector.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        embeddings: LiveEmbeddings,
        *,
        relations: LiveRelations | None = None,
        shape: LiveShape | None = None,
        words: LiveWords | None = None,
        codes: LiveCodes | None = None,
    ) -> None:
        self.graph, self.embeddings, self.relations = graph, embeddings, relations
        self.shape, self.words, self.codes = shape, words, codes
        parts = (embeddings, relations, shape, words, codes)
        self._vectors = [part for part in parts if part is not None]
        self.dims = sum(part.dims for part in self._vectors)
        self._begin_change()

    def _begin_change(self) -> None:
        self._touched: list[Tensor] = []
        self._recomputed = 0
        self._cut = False

    @property
    def num_features(self) -> int:
        """Width of the features that nodes are given with, words among them."""
        return self.graph.num_features + (0 if self.words is None else self.words.dims)

    def _parted(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return features for hops, and words.  -> [n, d], [n, words]"""
        if not len(features):  # of any width
            features = features.new_zeros(0, self.num_features)
        return features[:, : self.graph.num_features], features[:, self.graph.num_features :]

    def features_of(self, nodes: Tensor) -> Tensor:
        """Return features as nodes were given with them.  int64 [n] -> float32 [n, num_features]"""
        rows = self.graph.features[nodes]
        return rows if self.words is None else torch.cat([rows, self.words.of(nodes)], dim=1)

    def of(self, nodes: Tensor) -> Tensor:
        """Return the vectors of some nodes.  int64 [n] -> float32 [n, dims]"""
        return torch.from_numpy(self.rows(nodes.numpy()))

    def rows(self, nodes: Array) -> Array:
        """Return the same as an array."""
        parts = [part.rows(nodes) for part in self._vectors]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def change(
        self,
        features: Tensor,
        edges: Tensor,
        *,
        weights: Tensor | None = None,
        cut: Tensor | None = None,
        renewed: tuple[Tensor, Tensor] | None = None,
        relations: Sequence[str] = (),
        types: Sequence[str | None] = (),
    ) -> None:
        """Add nodes and edges, then remove edges, then replace features of nodes.

        features: of new nodes, words included, [new, num_features]; edges: positions, int64
        [2, edges]; weights: of the edges, float32 [edges]; cut: edges to remove, int64 [2, removed];
        renewed: nodes and their new features, int64 [n], [n, num_features]; relations, types: one
        per edge, or new node, or empty
        """
        rows, words = self._parted(features)
        change = self.graph.add(rows, edges, weights)
        if self.words is not None:
            self.words.add(words)
        if cut is not None:
            change = change.then(self.graph.disconnect(cut))
        # An edge of weight 0 is removed. Rows that have lost a neighbour are summed anew, since the
        # rounding of a correction would still tell of it once it is forgotten.
        self._cut |= cut is not None or (weights is not None and bool((weights == 0).any()))
        if renewed is not None:
            nodes, (values, words) = renewed[0], self._parted(renewed[1])
            renewed = nodes, values
            change = change.then(self.graph.renew(nodes, values))
            if self.words is not None:
                self._touched.append(self.words.renew(nodes, words))
        if self._cut:
            change = replace(change, entries=None)
        if self.relations is not None:
            self.relations.extend(rows, types)
            named = relations or [PLAIN] * edges.shape[1]
            self.relations.connect(edges, named, weights)
            if cut is not None:
                self.relations.disconnect(cut, both_ways=self.graph.undirected)
            if renewed is not None:
                self.relations.renew(*renewed)
        self._follow(change, no_nodes(), no_nodes())

    def _follow(self, change: GraphChange, relabelled: Tensor, classes: Tensor) -> None:
        """Update vectors to a change of the graph and of labels, see ``recode``."""
        self._touched += [change.removed, self.embeddings.update(self.graph, change)]
        self._recomputed += len(self._touched[-1])
        if self.relations is not None:
            self._touched.append(self.relations.update())
        if self.shape is not None:
            self._touched.append(self.shape.update(self.graph, change))
        if self.words is not None:
            self.words.follow(change)
        self._recode(change, relabelled, classes)
        if self.relations is not None:
            self.relations.clear()

    def _recode(self, change: GraphChange, relabelled: Tensor, classes: Tensor) -> None:
        """Update class codes.  relabelled: nodes, int64 [n]; classes: theirs by now, int64 [n]"""
        if self.codes is not None:
            self._touched.append(self.codes.update(self.graph, change, relabelled, classes))

    def _touch_all(self) -> None:
        """Compute all vectors anew."""
        everything = self.graph.alive.nonzero().flatten()
        self._follow(GraphChange(touched=everything, entries=None), no_nodes(), no_nodes())
        self._touched.append(everything)

    def _all_touched(self) -> Tensor:
        """Return the nodes that changes concerned.  int64 [n], ascending"""
        return torch.from_numpy(distinct(torch.cat([no_nodes(), *self._touched]).numpy()))

    def reached_by(self, nodes: Tensor) -> Tensor:
        """Return all nodes whose vectors these may influence, including themselves."""
        hops = max(self.embeddings.topology.hops, CODE_HOPS)
        for _ in range(hops + 1):  # degrees of the outermost matter
            nodes = self.graph.gatherers(nodes)
        return nodes

    def _attach(self, classes: Sequence[Label], labels: Tensor) -> None:
        """Attach the graph to its parts, once all of them were restored.  labels: of all nodes"""
        self.embeddings.attach(self.graph)
        if self.codes is not None:
            self.codes.name(classes)
            for rows in torch.arange(len(labels)).split(ROWS):
                self.codes.show(rows, labels[rows])
            self.codes.attach(self.graph)
