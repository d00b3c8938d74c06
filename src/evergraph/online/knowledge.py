"""A growing graph, what is known of its nodes, and a head that follows both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.predictions import likeliest, target_values
from evergraph.graphs import UNLABELLED
from evergraph.online.delta import Label, NodeId
from evergraph.online.earlier import Earlier
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import EmbeddingUpdate, LiveEmbeddings
from evergraph.online.graph.live_relations import PLAIN, LiveRelations
from evergraph.online.heads import OnlineHead
from evergraph.online.heads.base import class_scores
from evergraph.online.held_back import HeldBack
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

    @property
    def every(self) -> Tensor:
        """The classes of all positions.  int64 [positions], a view until there are more"""
        return self._numbers.tensor

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


@dataclass(frozen=True, eq=False)
class Settled:
    """What a delta has done to vectors.

    Attributes:
        nodes: whose vectors are others now, or were computed anew; those that went among them.
            int64 [n], ascending
        vectors: what they are, zeros of those that went.  float32 [n, dims]
        recomputed: how many embeddings were computed anew.
    """

    nodes: Tensor
    vectors: Tensor
    recomputed: int


class Knowledge:
    """A growing graph whose embeddings, class codes and head follow it.

    Nodes are positions here. A node's vector is its embedding and, for heads that look at them,
    the class codes around it. Within a delta a node may move more than once, be labelled and
    forgotten; the head is told once, when the delta ``settles``: where a node was when the head
    last heard of it, and where it is.

    Heads that are weighed (``OnlineHead.holds_back``) do not learn from the nodes held back, and
    their labels are in no class code.

    Args:
        graph: the graph.
        embeddings: of its nodes.
        head: has begun.
        seed: of class codes.
        related: whether edges have relations, or nodes types, which the head looks at.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        embeddings: LiveEmbeddings,
        head: OnlineHead,
        *,
        seed: int = 0,
        related: bool = False,
    ) -> None:
        self.graph = graph
        self.embeddings = embeddings
        self.head = head
        self.labels = NodeLabels()
        self.classes = IdTable()
        self.relations = LiveRelations(num_features=graph.num_features) if related else None
        self.codes = None
        if head.code_width:
            self.codes = LiveCodes(width=head.code_width, seed=seed, relations=self.relations)
        self.held = HeldBack() if head.holds_back else None
        self._learned = NodeLabels()  # with which classes the head has learned nodes
        self._places = tuple(Earlier(part.dims) for part in self._vectors)
        self._touched: list[Tensor] = []
        self._recomputed = 0

    @property
    def nbytes(self) -> int:
        """How many bytes graph, embeddings, codes and head take."""
        parts = (self.graph, *self._vectors, self.held, self.head)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def _vectors(self) -> list[LiveEmbeddings | LiveRelations | LiveCodes]:
        """What makes up a node's vector, in order."""
        parts = (self.embeddings, self.relations, self.codes)
        return [part for part in parts if part is not None]

    def of(self, nodes: Tensor) -> Tensor:
        """Return the vectors of some nodes, codes beside embeddings.  -> float32 [n, dims]"""
        parts = [part.of(nodes) for part in self._vectors]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def change(
        self,
        ids: Sequence[NodeId],
        features: Tensor,
        edges: Tensor,
        *,
        weights: Tensor | None = None,
        cut: Tensor | None = None,
        renewed: tuple[Tensor, Tensor] | None = None,
        relations: Sequence[str] = (),
        types: Sequence[str | None] = (),
    ) -> None:
        """Add nodes and edges, then remove edges, then give nodes other features.

        ids: the user's, of new nodes; features: [new, d]; edges: positions, int64 [2, edges];
        weights: of the edges, float32 [edges]; cut: positions, int64 [2, removed]; renewed: nodes
        and their features, int64 [n], float32 [n, d]; relations: one an edge or none; types: one a
        new node or none
        """
        for labels in (self.labels, self._learned):
            labels.extend(len(features))
        if self.held is not None:
            self.held.extend(ids)
        rows = features.reshape(len(features), self.graph.num_features)
        change = self.graph.add(rows, edges, weights)
        if cut is not None:
            change = change.then(self.graph.disconnect(cut))
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
        """Follow a change of the graph, and of labels, with embeddings and codes."""
        self._touched.append(change.removed)
        self._note(self.embeddings, self.embeddings.update(self.graph, change))
        self._recomputed += len(self._touched[-1])
        if self.relations is not None:
            self._note(self.relations, self.relations.update())
        self._recode(change, relabelled)
        if self.relations is not None:
            self.relations.clear()
        self._show()

    def _recode(self, change: GraphChange, relabelled: Tensor | None = None) -> None:
        if self.codes is not None:
            nodes = torch.empty(0, dtype=torch.int64) if relabelled is None else relabelled
            moved = self.codes.update(self.graph, change, nodes, self._to_learn(nodes))
            self._note(self.codes, moved)

    def _note(self, part: object, moved: EmbeddingUpdate) -> None:
        """Remember what moved in a part of vectors, and of learned nodes from where."""
        self._touched.append(moved.nodes)
        learned = self._learned.of(moved.nodes) != UNLABELLED
        (places,) = (p for p, own in zip(self._places, self._vectors, strict=True) if own is part)
        places.note(moved.nodes[learned], moved.before[learned])

    def _show(self) -> None:
        if self.head.needs_graph:
            self.head.see(*self.graph.to_graph())

    def _to_learn(self, nodes: Tensor) -> Tensor:
        """Return the classes of nodes as the head is to learn them: none of those held back."""
        labels = self.labels.of(nodes)
        if self.held is None:
            return labels
        return labels.masked_fill(self.held.mask(nodes), UNLABELLED)

    def number(self, labels: Sequence[Label]) -> Tensor:
        """Return the numbers of classes; one that is new gets the next.  -> int64 [labels]"""
        for label in labels:
            if label not in self.classes:
                self.classes.add([label])
                self.head.meet([label])
                if self.codes is not None:
                    self.codes.name([label])
        self.head.grow(len(self.classes))
        return self.classes.positions(labels)

    def guess(self, nodes: Tensor) -> Tensor | None:
        """Return the classes predicted from what was learned so far; None if nothing was.

        Where nodes have several labels or numbers, probabilities or these.  -> [n, targets]
        """
        met = self.met
        if not len(nodes) or not bool(met.any()):
            return None
        if self.head.kind != "class":
            return target_values(self.head.scorer()(nodes, self.of(nodes)), self.head.kind)
        scores = class_scores(self.head.scorer(), met, nodes, self.of(nodes))
        return likeliest(scores)[0].flatten()

    @property
    def names(self) -> tuple[Label, ...]:
        """What classes are called, or labels; nothing where nodes have numbers."""
        if self.head.kind == "class":
            return tuple(self.classes)
        return tuple(getattr(self.head, "names_", ()))

    @property
    def met(self) -> Tensor:
        """Which classes have nodes.  bool [classes]"""
        met = torch.zeros(len(self.classes), dtype=torch.bool)
        met[: len(self.labels.counts_)] = self.labels.counts_ > 0
        return met

    def learn(self, nodes: Tensor, labels: Tensor) -> None:
        """Learn classes; a node that has another already is forgotten with that one first."""
        other = self.labels.of(nodes) != labels
        relabelled = self._relabel(nodes[other], labels[other])
        if len(relabelled):
            self._recode(GraphChange(), relabelled)

    def _relabel(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Set classes; return whom the head is to learn with another class, or no longer."""
        moved = nodes
        if self.held is not None:
            moved = torch.cat([nodes, self.held.change(nodes, self.labels.of(nodes), labels)])
        self.labels.put(nodes, labels)
        self._touched.append(moved)
        distinct: Tensor = moved.unique()
        return distinct

    def forget(self, nodes: Tensor) -> None:
        """Take nodes out of what was learned, and out of the graph."""
        # As they are now, unless they have moved before: the graph will know nothing of them.
        learned = nodes[self._learned.of(nodes) != UNLABELLED]
        for places, part in zip(self._places, self._vectors, strict=True):
            places.note(learned, part.of(learned))
        relabelled = self._relabel(nodes, torch.full_like(nodes, UNLABELLED))
        if self.held is not None:
            self.held.wipe(nodes)
        if self.relations is not None:
            self.relations.forget(nodes)
        self._follow(self.graph.remove(nodes), relabelled)

    def settle(self) -> Settled:
        """Tell the head all that has changed since it last settled."""
        nodes = torch.cat([torch.empty(0, dtype=torch.int64), *self._touched]).unique()
        vectors = self.of(nodes)
        self._teach(nodes, vectors)
        if self.held is not None:
            held = self.held.nodes
            self.head.weigh(self.of(held), self.labels.of(held))
        self.head.settle()
        done = Settled(nodes, vectors, self._recomputed)
        for places in self._places:
            places.clear()
        self._touched, self._recomputed = [], 0
        return done

    def _teach(self, nodes: Tensor, vectors: Tensor) -> None:
        old, new = self._learned.of(nodes), self._to_learn(nodes)
        before = self._before(nodes, vectors, old != UNLABELLED)
        gone = (old != new) & (old != UNLABELLED)
        self.head.forget(nodes[gone], before[gone], old[gone])
        # Some of what is computed anew comes out the same.
        stay = (old == new) & (old != UNLABELLED)
        stay[stay.clone()] = (before[stay] != vectors[stay]).any(1)
        self.head.move(nodes[stay], before[stay], vectors[stay], old[stay])
        come = (old != new) & (new != UNLABELLED)
        self.head.learn(nodes[come], vectors[come], new[come])
        self._learned.put(nodes, new)

    def _before(self, nodes: Tensor, vectors: Tensor, learned: Tensor) -> Tensor:
        """Return the vectors that the head has learned nodes with; of others, what they are."""
        if not bool(learned.any()):
            return vectors
        parts = vectors.split([part.dims for part in self._vectors], dim=1)
        found = [places.of(nodes, part) for places, part in zip(self._places, parts, strict=True)]
        return torch.cat(found, dim=1)

    def state(self) -> dict[str, Tensor]:
        """Return everything, by name."""
        parts = {name: part.state() for name, part in self._parts().items()}
        return {f"{part}.{name}": v for part, kept in parts.items() for name, v in kept.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        labels = part_of(state, "labels.")
        for name, part in self._parts().items():
            kept = part_of(state, f"{name}.")
            if isinstance(part, HeldBack):
                part.restore(kept, labels["numbers"])
            else:
                part.restore(kept)
        self.embeddings.attach(self.graph)
        self.head.meet(list(self.classes))
        every = torch.arange(self.graph.num_nodes)
        learned = self._to_learn(every)
        if self.codes is not None:
            self.codes.name(list(self.classes))
            self.codes.show(every, learned)
            self.codes.attach(self.graph)
        self._learned = NodeLabels()
        self._learned.extend(len(every))
        self._learned.put(every, learned)
        self._show()

    def _parts(self) -> dict[str, Any]:
        """Return what keeps a state of its own, by name."""
        names = ("graph", "embeddings", "relations", "codes", "held", "head", "labels", "classes")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
