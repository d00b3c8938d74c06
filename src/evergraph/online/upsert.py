"""What is new in a dump that may have been given before."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.label_space import Kind
from evergraph.graphs import UNLABELLED
from evergraph.online.answers import name_of
from evergraph.online.delta import Delta, DeltaResult, NodeId, Told
from evergraph.online.delta_parts import check_parts
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
    check_parts(delta, num_features=width, kind=kind)
    known = [row for row, node in enumerate(delta.nodes) if node in ids]
    new = [row for row, node in enumerate(delta.nodes) if node not in ids]
    labels = delta.labels or (None,) * len(delta.nodes)
    told = [(delta.nodes[row], label) for row in known if (label := labels[row]) is not None]
    updated, missing = _updated(delta, ids, knowledge)
    nowhere = {node for node in delta.updated if node not in ids}
    later = [pair for pair in delta.late if pair[0] not in nowhere]
    late, changed = _late([*told, *later], ids, knowledge)
    find = _related_edges if len(delta.relations) else _edges
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
    known = [row for row, node in enumerate(delta.updated) if node in ids]
    missing = len(delta.updated) - len(known)
    if knowledge is None or not known:
        return [], missing
    places = ids.positions([delta.updated[row] for row in known])
    other = (knowledge.graph.features[places] != delta.updated_features[known]).any(1).tolist()
    return [row for row, changes in zip(known, other, strict=True) if changes], missing


@dataclass(frozen=True)
class _Edges:
    """What of a delta's edges changes something; counts: as ``News`` has them."""

    pairs: Edges
    weights: list[float]
    removed: Edges
    counts: dict[str, int]
    relations: Sequence[str] = ()


def _related_edges(
    delta: Delta, ids: IdTable, knowledge: Knowledge | None, *, both_ways: bool
) -> _Edges:
    """Return edges whose relation is not known of their nodes, each once with the last weight."""
    weights: Sequence[float | None] = delta.weights or [None] * len(delta.edges)
    pairs = zip(delta.edges, delta.relations, strict=True)
    given = dict(zip(((*pair, name) for pair, name in pairs), weights, strict=True))
    live = None if knowledge is None else knowledge.relations
    ends = torch.stack([ids.where([edge[side] for edge in given]) for side in (0, 1)])
    there = torch.zeros(len(given))
    if live is not None:
        there = live.weights_of(ends, [name for *_, name in given])
    known = dict(zip(given, there.tolist(), strict=True))
    news = {edge: weight for edge, weight in given.items() if _is_news(weight, known[edge])}
    plain = replace(delta, edges=(), weights=(), relations=())
    removed = _edges(plain, ids, knowledge, both_ways=both_ways)
    new = sum(known[edge] == 0 for edge in news)
    gone = sum(weight == 0 for weight in news.values())
    return _Edges(
        pairs=[(source, target) for source, target, _ in news],
        weights=[weight for weight in news.values() if weight is not None],
        removed=removed.removed,
        counts=removed.counts
        | {
            "new_edges": new,
            "known_edges": len(delta.edges) - len(news),
            "changed_weights": len(news) - new - gone,
            "removed_edges": gone + removed.counts["removed_edges"],
        },
        relations=[name for *_, name in news],
    )


def _edges(delta: Delta, ids: IdTable, knowledge: Knowledge | None, *, both_ways: bool) -> _Edges:
    """Return edges that are not known, each once; those to nowhere stay, to be refused.

    One that is given and removed at once comes to nothing, or goes.
    """
    cut = {_name(edge, both_ways): edge for edge in delta.removed_edges}
    given = _each_once(delta, ids, both_ways, without=cut)
    known = dict(zip(given, _weights(list(given), ids, knowledge), strict=True))
    news = {edge: weight for edge, weight in given.items() if _is_news(weight, known[edge])}
    there = _weights(list(cut.values()), ids, knowledge)
    removed = [edge for edge, weight in zip(cut.values(), there, strict=True) if weight]
    new = sum(known[edge] == 0 for edge in news)
    gone = sum(weight == 0 for weight in news.values())
    absent = sum(weight == 0 and not known[edge] for edge, weight in given.items())
    return _Edges(
        pairs=list(news),
        weights=[weight for weight in news.values() if weight is not None],
        removed=removed,
        counts={
            "new_edges": new,
            "known_edges": len(delta.edges) - len(news) - absent,
            "changed_weights": len(news) - new - gone,
            "removed_edges": gone + len(removed),
            "missing_edges": absent + len(delta.removed_edges) - len(removed),
        },
    )


def _each_once(
    delta: Delta, ids: IdTable, both_ways: bool, *, without: Container[object]
) -> dict[tuple[NodeId, NodeId], float | None]:
    """Return edges as they came first, with the weights they were given last, if any; no loops."""
    new = frozenset(delta.nodes)
    first: dict[object, tuple[NodeId, NodeId]] = {}
    found: dict[tuple[NodeId, NodeId], float | None] = {}
    weights: Sequence[float | None] = delta.weights or [None] * len(delta.edges)
    for (source, target), weight in zip(delta.edges, weights, strict=True):
        name = _name((source, target), both_ways)
        loop = source == target and (source in ids or source in new)
        if not loop and name not in without:
            found[first.setdefault(name, (source, target))] = weight
    return found


def _name(edge: tuple[NodeId, NodeId], both_ways: bool) -> object:
    return frozenset(edge) if both_ways else tuple(edge)


def _weights(edges: Edges, ids: IdTable, knowledge: Knowledge | None) -> list[float]:
    """Return what edges weigh, 0 where they are not known."""
    if knowledge is None or not edges:
        return [0.0] * len(edges)
    sides = (ids.where(side) for side in zip(*edges, strict=True))
    graph = knowledge.graph
    found = graph.weights_of(*sides) if graph.weighted else graph.lists(*sides).float()
    weights: list[float] = found.tolist()
    return weights


def _is_news(weight: float | None, known: float) -> bool:
    """Whether an edge of a weight, if it is given one, changes what is known of it."""
    return known == 0 if weight is None else float(np.float32(weight)) != known
