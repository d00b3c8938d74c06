"""A growing graph with the vectors of its nodes, updated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.views import CODE_HOPS
from evergraph.online.delta import Label
from evergraph.online.graph.growing_array import Array
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph, no_nodes
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import ROWS, LiveEmbeddings
from evergraph.online.graph.live_relations import PLAIN, LiveRelations
from evergraph.online.graph.live_rows import LiveShape, LiveWords
from evergraph.online.graph.neighbour_lists import distinct


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
