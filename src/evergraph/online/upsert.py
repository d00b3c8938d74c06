"""What is new in a dump that may have been given before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import Kind
from evergraph.graphs import UNLABELLED
from evergraph.online.answers import name_of
from evergraph.online.checking import edge_names
from evergraph.online.delta import Delta, DeltaResult, NodeId, Told
from evergraph.online.delta_parts import check_parts
from evergraph.online.edge_columns import in_columns, listed
from evergraph.online.identifiers import IdTable
from evergraph.online.new_edges import new_edges, related_edges

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

    whole = pa.types.is_integer(sources.type)
    sides = (side.to_numpy(zero_copy_only=False) if whole else side for side in (sources, targets))
    listed: NDArray[np.bool_] = knowledge.graph.lists(*map(ids.where, sides)).numpy()
    return listed


@dataclass(frozen=True)
class EdgesBeyond:
    """Known edges that a dump has not.

    Attributes:
        sources: ids of the nodes that they begin at.
        targets: ids of those that they end at.
        known: how many edges were looked at.
    """

    sources: list[NodeId]
    targets: list[NodeId]
    known: int


def edges_beyond(
    ids: IdTable,
    knowledge: Knowledge | None,
    edges: tuple[pyarrow.Array, pyarrow.Array],
    without: Sequence[NodeId],
    *,
    both_ways: bool,
) -> EdgesBeyond:
    """Return known edges that are not among some, the complement of ``known_edges``.

    edges: a dump's, ids strings or int64; without: nodes whose edges are not looked at; both_ways:
    whether (a, b) and (b, a) are one edge.
    """
    if knowledge is None:
        return EdgesBeyond([], [], 0)
    if knowledge.relations is not None:
        raise ConfigurationError(
            "--sync must not be given with --edges where edges have relations: one of several "
            "between the same two nodes cannot go alone"
        )
    given = torch.stack([ids.where(listed(side)) for side in edges])
    known = knowledge.graph.edges()
    known = known[:, ~torch.isin(known, ids.where(list(without))).any(0)]
    names = edge_names(torch.cat([known, given], dim=1), both_ways=both_ways)
    distinct, first = np.unique(names[: known.shape[1]], return_index=True)
    gone = np.sort(first[~np.isin(distinct, names[known.shape[1] :])])
    sources, targets = ([ids.at(place) for place in side[gone].tolist()] for side in known)
    return EdgesBeyond(sources, targets, len(distinct))


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
        changed_weights: edges that weighed something else.
        removed_edges: edges that go.
        missing_edges: edges that were to go and were not there.
        updated_nodes: known nodes that get other features than they had.
        missing_nodes: nodes that were to get other features and are not known.
    """

    new_nodes: int = 0
    known_nodes: int = 0
    other_features: int = 0
    new_edges: int = 0
    known_edges: int = 0
    new_labels: int = 0
    changed_labels: int = 0
    forgotten: int = 0
    changed_weights: int = 0
    removed_edges: int = 0
    missing_edges: int = 0
    updated_nodes: int = 0
    missing_nodes: int = 0


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
    delta: Delta,
    ids: IdTable,
    knowledge: Knowledge | None,
    *,
    kind: Kind = "class",
    undirected: bool = True,
) -> tuple[Delta, News]:
    """Return a delta without what is known already, and how much of it is new.

    Known nodes are left out, their labels become late ones where they differ; their features are
    changed only where they are among the ``updated``. Edges with their weights, features and
    labels that are known are left out, and so is what is not known of edges that are to go, of
    nodes to update and of nodes to forget. What is left is an ordinary delta, without a key: sent
    again it would be empty.
    """
    width = None if knowledge is None else knowledge.graph.num_features
    delta = in_columns(delta)
    check_parts(delta, num_features=width, kind=kind)
    there = (ids.where(delta.nodes) >= 0).numpy()
    known, new = np.flatnonzero(there).tolist(), np.flatnonzero(~there).tolist()
    labels = delta.labels or (None,) * len(delta.nodes)
    told = [(delta.nodes[row], label) for row in known if (label := labels[row]) is not None]
    updated, missing = _updated(delta, ids, knowledge)
    nowhere = {node for node in delta.updated if node not in ids}
    later = [pair for pair in delta.late if pair[0] not in nowhere]
    late, changed = _late([*told, *later], ids, knowledge)
    find = related_edges if len(delta.relations) else new_edges
    edges = find(delta, ids, knowledge, both_ways=undirected)
    first = [labels[row] for row in new]
    forgotten = [node for node in delta.forgotten if node in ids]
    reduced = replace(
        delta,
        nodes=[delta.nodes[row] for row in new],
        features=delta.features[new] if new else torch.zeros(0, 0),
        labels=first,
        edges=edges.pairs,
        weights=edges.weights,
        relations=edges.relations,
        types=[delta.types[row] for row in new] if len(delta.types) else [],
        removed_edges=edges.removed,
        updated=[delta.updated[row] for row in updated],
        updated_features=delta.updated_features[updated] if updated else torch.zeros(0, 0),
        late=late,
        forgotten=forgotten,
        key=None,
    )
    return reduced, News(
        new_nodes=len(new),
        known_nodes=len(known),
        other_features=_other_features(delta, known, ids, knowledge),
        **edges.counts,
        new_labels=len(first) - first.count(None) + len(late) - changed,
        changed_labels=changed,
        forgotten=len(forgotten),
        updated_nodes=len(updated),
        missing_nodes=missing,
    )


def is_empty(delta: Delta) -> bool:
    """Whether a delta changes nothing."""
    parts = (delta.nodes, delta.edges, delta.removed_edges, delta.updated, delta.late)
    return not any(map(len, (*parts, delta.forgotten)))


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


def _updated(delta: Delta, ids: IdTable, knowledge: Knowledge | None) -> tuple[list[int], int]:
    """Return which of the nodes to update get other features, and how many are not known."""
    known = np.flatnonzero(ids.where(delta.updated).numpy() >= 0).tolist()
    missing = len(delta.updated) - len(known)
    if knowledge is None or not known:
        return [], missing
    places = ids.positions([delta.updated[row] for row in known])
    other = (knowledge.graph.features[places] != delta.updated_features[known]).any(1).tolist()
    return [row for row, changes in zip(known, other, strict=True) if changes], missing
