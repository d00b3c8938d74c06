"""What changes in a growing graph at once, and what a learner says that it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evergraph.core.display import ShownRecord

NodeId = str | int
Label = str | int
Told = Label | Sequence[Label] | float
"""What a node is said to be: one class, several labels, or a number."""


@dataclass(frozen=True, eq=False)
class Delta:
    """New nodes and edges, edges that go, features and labels that are others now, and nodes to be
    forgotten, in that order.

    It is applied whole or not at all. Ids are the user's own.

    Attributes:
        nodes: ids of new nodes.
        features: of the new nodes.  float32 [nodes, dims]
        labels: of the new nodes, None where the class is not known (yet). Where a learner has
            several labels a node, a list of them, and where it has numbers, a number.
        edges: pairs of ids, known or new with this delta.
        weights: one per edge, or none at all: new edges weigh 1 then, known ones what they did. An
            edge given twice has the last weight; one of weight 0 goes.
        removed_edges: pairs of ids whose edges go.
        updated: ids of known nodes that get other features.
        updated_features: of these.  float32 [updated, dims]
        late: ids of known nodes and the labels they turn out to have.
        forgotten: ids of nodes that go, with their edges and their influence.
        relations: what each edge stands for, one per edge or none at all. Two nodes may be joined
            by several relations. A learner has relations from its first nodes on, or none: these
            have types, known or None, where their edges come later.
        types: what kind of thing each new node is, one per node (None where it is not known) or
            none at all.
        key: names the delta; a delta whose key was applied before is not applied again.

    >>> Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", None), edges=(("a", "b"),))
    Delta(2 nodes, 1 edges)
    """

    nodes: Sequence[NodeId] = ()
    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    labels: Sequence[Told | None] = ()
    edges: Sequence[tuple[NodeId, NodeId]] = ()
    late: Sequence[tuple[NodeId, Told]] = ()
    forgotten: Sequence[NodeId] = ()
    key: str | None = None
    weights: Sequence[float] = ()
    removed_edges: Sequence[tuple[NodeId, NodeId]] = ()
    updated: Sequence[NodeId] = ()
    updated_features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    relations: Sequence[str] = ()
    types: Sequence[str | None] = ()

    def __repr__(self) -> str:
        parts: list[tuple[str, Sequence[Any]]] = [("nodes", self.nodes), ("edges", self.edges)]
        parts += [("removed edges", self.removed_edges), ("updated", self.updated)]
        parts += [("late labels", self.late), ("forgotten", self.forgotten)]
        return f"Delta({', '.join(f'{len(part)} {name}' for name, part in parts if len(part))})"


@dataclass(frozen=True)
class DeltaResult(ShownRecord):
    """What became of a delta, in numbers that JSON can hold: it is kept beside the delta's key.

    Attributes:
        seq: how many deltas have been applied, this one included.
        new_nodes: how many nodes came with it.
        classes: how many classes are known now.
        recomputed: how many embeddings were computed anew, those of new nodes included.
        predicted: for how many nodes a class was predicted before their label was learned.
        right: how many of these predictions were right; of several labels all of a node's, and of
            numbers none is counted.
        counted: how many labelled nodes were counted, or counted again because they have moved.

    >>> DeltaResult(seq=1, new_nodes=2, classes=1, recomputed=2)
    DeltaResult(seq=1, new_nodes=2, classes=1, recomputed=2, predicted=0, right=0, counted=0)
    """

    seq: int
    new_nodes: int = 0
    classes: int = 0
    recomputed: int = 0
    predicted: int = 0
    right: int = 0
    counted: int = 0
