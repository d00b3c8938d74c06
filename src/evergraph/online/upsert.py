"""What is new in a dump that may have been given before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.label_space import Kind
from evergraph.graphs import UNLABELLED
from evergraph.online.answers import name_of
from evergraph.online.checking import check_parts
from evergraph.online.delta import Delta, DeltaResult, NodeId, Told
from evergraph.online.identifiers import IdTable

if TYPE_CHECKING:
    import pyarrow

    from evergraph.online.knowledge import Knowledge


def known_edges(
    ids: IdTable, knowledge: Knowledge | None, sources: pyarrow.Array, targets: pyarrow.Array
) -> NDArray[np.bool_]:
    """Return which edges are known.  sources, targets: ids, both strings or both int64 [edges]"""
    if knowledge is None or not len(sources):
        return np.zeros(len(sources), dtype=bool)
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = int if pa.types.is_integer(sources.type) else str
    names = [name for name in ids if type(name) is kind]
    places = ids.where(names).numpy()
    known = pa.array(names, sources.type)

    def positions(side: pyarrow.Array) -> torch.Tensor:
        found = pc.fill_null(pc.index_in(side, value_set=known), -1).to_numpy()
        return torch.from_numpy(np.append(places, -1)[found])  # what is not found is last

    listed: NDArray[np.bool_] = knowledge.graph.lists(
        positions(sources), positions(targets)
    ).numpy()
    return listed


Edges = list[tuple[NodeId, NodeId]]


@dataclass(frozen=True)
class News:
    """How much of a delta was new, in numbers that JSON can hold.

    Attributes:
        new_nodes: nodes that were not known.
        known_nodes: nodes that were.
        other_features: how many of the known have other features than given; they stay as known.
        new_edges: edges that were not known, each counted once.
        known_edges: edges that were, self-loops and edges that are given twice.
        new_labels: labels of nodes that had none.
        changed_labels: labels of nodes that had another.
        forgotten: nodes that go.
    """

    new_nodes: int = 0
    known_nodes: int = 0
    other_features: int = 0
    new_edges: int = 0
    known_edges: int = 0
    new_labels: int = 0
    changed_labels: int = 0
    forgotten: int = 0


@dataclass(frozen=True)
class Upserted:
    """What became of a delta that may repeat what is known.

    Attributes:
        applied: what was done; where nothing was new, nothing, and ``seq`` is that of the last.
        news: what of it was new.
    """

    applied: DeltaResult
    news: News


def only_new(
    delta: Delta, ids: IdTable, knowledge: Knowledge | None, *, kind: Kind = "class"
) -> tuple[Delta, News]:
    """Return a delta without what is known already, and how much of it is new.

    Known nodes are left out, their labels become late ones where they differ; features of known
    nodes are not changed. Edges and labels that are known and nodes to forget that are not are
    left out. What is left is an ordinary delta, without a key: sent again it would be empty.
    """
    width = None if knowledge is None else knowledge.graph.num_features
    check_parts(delta, num_features=width, kind=kind)
    known = [row for row, node in enumerate(delta.nodes) if node in ids]
    new = [row for row, node in enumerate(delta.nodes) if node not in ids]
    labels = delta.labels or (None,) * len(delta.nodes)
    told = [(delta.nodes[row], label) for row in known if (label := labels[row]) is not None]
    late, changed = _late([*told, *delta.late], ids, knowledge)
    edges = _edges(delta, ids, knowledge)
    first = [labels[row] for row in new]
    forgotten = [node for node in delta.forgotten if node in ids]
    reduced = replace(
        delta,
        nodes=[delta.nodes[row] for row in new],
        features=delta.features[new] if new else torch.zeros(0, 0),
        labels=first,
        edges=edges,
        late=late,
        forgotten=forgotten,
        key=None,
    )
    return reduced, News(
        new_nodes=len(new),
        known_nodes=len(known),
        other_features=_other_features(delta, known, ids, knowledge),
        new_edges=len(edges),
        known_edges=len(delta.edges) - len(edges),
        new_labels=len(first) - first.count(None) + len(late) - changed,
        changed_labels=changed,
        forgotten=len(forgotten),
    )


def is_empty(delta: Delta) -> bool:
    """Whether a delta changes nothing."""
    return not any(len(p) for p in (delta.nodes, delta.edges, delta.late, delta.forgotten))


def _other_features(
    delta: Delta, known: list[int], ids: IdTable, knowledge: Knowledge | None
) -> int:
    if knowledge is None or not known:
        return 0
    places = ids.positions([delta.nodes[row] for row in known])
    other = knowledge.graph.features[places] != delta.features[known]
    return int(other.any(1).sum())


def _late(
    pairs: Sequence[tuple[NodeId, Told]], ids: IdTable, knowledge: Knowledge | None
) -> tuple[list[tuple[NodeId, Told]], int]:
    """Return labels that are not known, and how many of them change one."""
    if knowledge is None:
        return list(pairs), 0
    places = ids.where([node for node, _ in pairs])
    numbers = torch.full_like(places, UNLABELLED)
    numbers[places >= 0] = knowledge.labels.of(places[places >= 0])
    late, changed = [], 0
    for (node, label), number in zip(pairs, numbers.tolist(), strict=True):
        if number == UNLABELLED:
            late.append((node, label))
        elif knowledge.classes.at(number) != name_of(knowledge.head.kind, label):
            late.append((node, label))
            changed += 1
    return late, changed


def _edges(delta: Delta, ids: IdTable, knowledge: Knowledge | None) -> Edges:
    """Return edges that are not known, each once; those to nowhere stay, to be refused."""
    pairs = list(delta.edges)
    if knowledge is not None and pairs:
        sources, targets = (ids.where(side) for side in zip(*pairs, strict=True))
        listed = knowledge.graph.lists(sources, targets).tolist()
        pairs = [edge for edge, there in zip(pairs, listed, strict=True) if not there]
    both_ways = knowledge is None or knowledge.graph.undirected
    new = frozenset(delta.nodes)
    seen: dict[tuple[NodeId, NodeId], None] = {}  # in the order in which they came
    for source, target in pairs:
        loop = source == target and (source in ids or source in new)
        if not loop and not (both_ways and (target, source) in seen):
            seen[source, target] = None
    return list(seen)
