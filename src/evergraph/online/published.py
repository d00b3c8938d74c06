"""What look-ups read: the graph and what is known of its nodes, as the last whole delta left it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.label_space import Kind
from evergraph.online.delta import Label
from evergraph.online.graph.frozen_graph import FrozenGraph
from evergraph.online.graph.growing_array import FrozenRows
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_relations import FrozenRelations
from evergraph.online.graph.live_smoother import FrozenSmoother
from evergraph.online.identifiers import IdTable


@dataclass(frozen=True, eq=False)
class Published:
    """A graph, its normalised adjacency, labels and shown codes as they were after a delta.

    Nothing is copied. What the next deltas change is noted before they change it (``FormerRows``),
    and lists of neighbours that change move elsewhere; so this can be read from any thread, without
    a lock, for as long as somebody holds it.

    Attributes:
        graph: the graph.
        smoother: its Â, by which embeddings were made.
        labels: the number of the class of every position.
        codes: the adjacency of class codes, and which codes are shown; None where there are none.
        embeddings: tell how parts of an embedding are weighted; nothing of their state is read.
        relations: who is joined by which, and what each node sends; None where there are none.
        classes: what they are called; names only come.
        kind: what nodes are said to be.
    """

    graph: FrozenGraph
    smoother: FrozenSmoother
    labels: FrozenRows
    codes: tuple[FrozenSmoother, FrozenRows] | None
    embeddings: LiveEmbeddings
    relations: FrozenRelations | None
    classes: IdTable
    kind: Kind

    def named_labels(self, nodes: Tensor) -> list[Label | None]:
        """Return the classes of nodes, None where one is not known.  int64 [n]"""
        numbers = self.labels.of(nodes.numpy()).tolist()
        return [None if number < 0 else self.classes.at(number) for number in numbers]

    def features(self, nodes: Tensor) -> Tensor:
        """Return the features of some nodes.  int64 [n] -> float32 [n, d]"""
        return torch.from_numpy(self.graph.features.of(nodes.numpy()))
