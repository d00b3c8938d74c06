"""Which nodes have a known class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evergraph.core.predictions import likeliest
from evergraph.graphs import UNLABELLED
from evergraph.online.delta import Label
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import EmbeddingUpdate, LiveEmbeddings
from evergraph.online.heads import OnlineHead
from evergraph.online.heads.base import class_scores
from evergraph.online.identifiers import IdTable
from evergraph.training.learner import part_of


class NodeLabels:
    """The class of every position, ``UNLABELLED`` (-1) where it is not known.

    Attributes:
        counts_: how many nodes each class has.  int64 [classes]

    >>> labels = NodeLabels()
    >>> labels.extend(3)
    >>> labels.put(torch.tensor([2, 0]), torch.tensor([1, 1]))
    >>> labels.of(torch.tensor([0, 1, 2])), labels.counts_
    (tensor([ 1, -1,  1]), tensor([0, 2]))
    """

    def __init__(self) -> None:
        self._numbers = GrowingArray(dtype=np.int64)
        self.counts_ = torch.zeros(0, dtype=torch.int64)

    def extend(self, nodes: int) -> None:
        """Add nodes whose class is not known."""
        self._numbers.extend(nodes)
        self._numbers.array[len(self._numbers) - nodes :] = UNLABELLED

    def of(self, positions: Tensor) -> Tensor:
        """Return the classes of some nodes.  int64 [n] -> int64 [n]"""
        return self._numbers.tensor[positions]

    def put(self, positions: Tensor, labels: Tensor) -> None:
        """Set the classes of some nodes, each named once; ``UNLABELLED`` takes one away."""
        if not len(positions):
            return
        old = self.of(positions)
        width = max(len(self.counts_), int(labels.max()) + 1)
        more, fewer = (
            torch.bincount(part[part != UNLABELLED], minlength=width) for part in (labels, old)
        )
        known = torch.zeros(width, dtype=torch.int64)
        known[: len(self.counts_)] = self.counts_
        self.counts_ = known + more - fewer
        self._numbers.tensor[positions] = labels

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {"numbers": self._numbers.state(), "counts": self.counts_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._numbers.restore(state["numbers"])
        self.counts_ = state["counts"]


class Knowledge:
    """A growing graph whose embeddings and head follow it.

    Nodes are positions here. Each step leaves the head with the vectors that nodes have now, so
    that it may be told of them again.

    Args:
        graph: the graph.
        embeddings: of its nodes.
        head: has begun.
    """

    def __init__(self, graph: GrowingGraph, embeddings: LiveEmbeddings, head: OnlineHead) -> None:
        self.graph = graph
        self.embeddings = embeddings
        self.head = head
        self.labels = NodeLabels()
        self.classes = IdTable()

    @property
    def nbytes(self) -> int:
        """How many bytes graph, embeddings and head take."""
        return self.graph.nbytes + self.embeddings.nbytes + self.head.nbytes

    def grow(self, features: Tensor, edges: Tensor) -> EmbeddingUpdate:
        """Add nodes and edges.  features: [new, d]; edges: positions, int64 [2, edges]"""
        self.labels.extend(len(features))
        rows = features.reshape(len(features), self.graph.num_features)
        return self._followed(self.graph.add(rows, edges))

    def _followed(self, change: GraphChange) -> EmbeddingUpdate:
        """Follow a change of the graph with embeddings and with what was learned from them."""
        moved = self.embeddings.update(self.graph, change)
        labels = self.labels.of(moved.nodes)
        # Some of what is computed anew comes out the same.
        rows = (labels != UNLABELLED) & (moved.before != moved.after).any(1)
        self.head.move(moved.nodes[rows], moved.before[rows], moved.after[rows], labels[rows])
        self._show()
        return moved

    def _show(self) -> None:
        if self.head.needs_graph:
            self.head.see(*self.graph.to_graph())

    def number(self, labels: Sequence[Label]) -> Tensor:
        """Return the numbers of classes; one that is new gets the next.  -> int64 [labels]"""
        for label in labels:
            if label not in self.classes:
                self.classes.add([label])
        self.head.grow(len(self.classes))
        return self.classes.positions(labels)

    def guess(self, nodes: Tensor) -> Tensor | None:
        """Return the classes predicted from what was learned so far; None if nothing was."""
        met = self.met
        if not len(nodes) or not bool(met.any()):
            return None
        vectors = self.embeddings.of(nodes)
        scores = class_scores(self.head.scorer(), met, nodes, vectors)
        return likeliest(scores)[0].flatten()

    @property
    def met(self) -> Tensor:
        """Which classes have nodes.  bool [classes]"""
        met = torch.zeros(len(self.classes), dtype=torch.bool)
        met[: len(self.labels.counts_)] = self.labels.counts_ > 0
        return met

    def learn(self, nodes: Tensor, labels: Tensor) -> None:
        """Learn classes; a node that has another already is forgotten with that one first."""
        old, vectors = self.labels.of(nodes), self.embeddings.of(nodes)
        other = old != labels
        changed = other & (old != UNLABELLED)
        self.head.forget(nodes[changed], vectors[changed], old[changed])
        self.head.learn(nodes[other], vectors[other], labels[other])
        self.labels.put(nodes, labels)

    def forget(self, nodes: Tensor) -> EmbeddingUpdate:
        """Take nodes out of what was learned, and then out of the graph."""
        labels = self.labels.of(nodes)
        known = labels != UNLABELLED
        self.head.forget(nodes[known], self.embeddings.of(nodes[known]), labels[known])
        self.labels.put(nodes, torch.full_like(nodes, UNLABELLED))
        return self._followed(self.graph.remove(nodes))

    def state(self) -> dict[str, Tensor]:
        """Return everything, by name."""
        parts = {name: getattr(self, name).state() for name in _PARTS}
        return {f"{part}.{name}": v for part, kept in parts.items() for name, v in kept.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        for name in _PARTS:
            getattr(self, name).restore(part_of(state, f"{name}."))
        self._show()


_PARTS = ("graph", "embeddings", "head", "labels", "classes")
