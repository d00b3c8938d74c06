"""A growing graph with labels, and the vectors of its nodes: embeddings and class codes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.closed_form.views import CODE_HOPS
from evergraph.online.array_storage import ArrayStorage
from evergraph.online.graph.growing_array import StoredPart
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph, no_nodes
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_relations import PLAIN, LiveRelations
from evergraph.online.learned_nodes import NodeLabels


class NodeVectors:
    """A growing graph whose nodes have vectors: the embedding, relations and class codes.

    Nodes are positions here. What a change touches is collected until the change is complete.

    Args:
        graph: the graph.
        embeddings: of its nodes.
        code_width: of class codes; 0 for none.
        seed: of class codes.
        related: whether vectors have relations of edges and types of nodes.

    Attributes:
        labels: classes of nodes.
        storage: of arrays that lie in files; None if all are in memory.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        embeddings: LiveEmbeddings,
        *,
        code_width: int,
        seed: int,
        related: bool,
    ) -> None:
        self.graph = graph
        self.embeddings = embeddings
        self.labels = NodeLabels()
        self.relations = LiveRelations(num_features=graph.num_features) if related else None
        self.codes = None
        if code_width:
            self.codes = LiveCodes(width=code_width, seed=seed, relations=self.relations)
        self.storage: ArrayStorage | None = None
        self._begin_change()

    def _begin_change(self) -> None:
        self._touched: list[Tensor] = []
        self._recomputed = 0
        self._cut = self._forgotten = self._urgent = False

    @property
    def _vectors(self) -> list[LiveEmbeddings | LiveRelations | LiveCodes]:
        """The parts of a node's vector, in order."""
        parts = (self.embeddings, self.relations, self.codes)
        return [part for part in parts if part is not None]

    @property
    def dims(self) -> int:
        """Width of a vector: embedding and codes."""
        return sum(part.dims for part in self._vectors)

    def of(self, nodes: Tensor) -> Tensor:
        """Return the vectors of some nodes: embeddings and codes.  -> float32 [n, dims]"""
        step = len(nodes) if self.storage is None else max(self.storage.span // (4 * self.dims), 1)
        if self.storage is not None and len(nodes) > step:  # many vectors lie in a file as well
            found = self.storage.empty(len(nodes), self.dims)
            for rows in torch.arange(len(nodes)).split(step):
                found[rows] = self.of(nodes[rows])
                self.storage.tidy()
            return found
        parts = [part.of(nodes) for part in self._vectors]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _stored(self) -> list[StoredPart]:
        """Return the parts of all vectors as they lie in memory; none if that is of no use."""
        parts = [part.stored() for part in self._vectors]
        if self.storage is not None or not self.graph.compiled or None in parts:
            return []
        return [one for part in parts for one in part or ()]

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

        features: of new nodes, [new, d]; edges: positions, int64 [2, edges];
        weights: of the edges, float32 [edges]; cut: edges to remove, int64 [2, removed]; renewed:
        nodes and their new features, int64 [n], float32 [n, d]; relations: one per edge, or empty;
        types: one per new node, or empty
        """
        rows = features.reshape(len(features), self.graph.num_features)
        change = self.graph.add(rows, edges, weights)
        if cut is not None:
            change = change.then(self.graph.disconnect(cut))
        # An edge of weight 0 is removed.
        self._cut |= cut is not None or (weights is not None and bool((weights == 0).any()))
        if renewed is not None:
            change = change.then(self.graph.renew(*renewed))
        if self.relations is not None:
            self.relations.extend(rows, types)
            named = relations or [PLAIN] * edges.shape[1]
            self.relations.connect(edges, named, weights)
            if cut is not None:
                self.relations.disconnect(cut, both_ways=self.graph.undirected)
            if renewed is not None:
                self.relations.renew(*renewed)
        self._follow(change)

    def _follow(self, change: GraphChange, relabelled: Tensor | None = None) -> None:
        """Update embeddings and codes to a change of the graph and of labels."""
        self._touched.append(change.removed)
        self._touched.append(self.embeddings.update(self.graph, change))
        self._recomputed += len(self._touched[-1])
        if self.relations is not None:
            self._touched.append(self.relations.update())
        self._recode(change, relabelled)
        if self.relations is not None:
            self.relations.clear()

    def _recode(self, change: GraphChange, relabelled: Tensor | None = None) -> None:
        if self.codes is not None:
            nodes = no_nodes() if relabelled is None else relabelled
            classes = self.labels.of(nodes)
            self._touched.append(self.codes.update(self.graph, change, nodes, classes))

    def reached_by(self, nodes: Tensor) -> Tensor:
        """Return all nodes whose vectors these may influence, including themselves."""
        hops = self.embeddings.topology.hops
        for _ in range(max(hops, CODE_HOPS) + 1):  # + 1: degrees of the outermost matter
            nodes = self.graph.gatherers(nodes)
        return nodes
