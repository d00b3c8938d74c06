"""What is new in a dump that may have been given before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, count
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import Kind
from evergraph.graphs import UNLABELLED
from evergraph.online.checking import check_parts, edge_names
from evergraph.online.delta import (
    Column,
    Delta,
    DeltaResult,
    NodeId,
    Told,
    edge_columns,
    in_columns,
    listed,
    name_of,
)
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge

if TYPE_CHECKING:
    import pyarrow


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


Edges = Sequence[tuple[NodeId, NodeId]]


@dataclass(frozen=True)
class NewEdges:
    """What of a delta's edges changes something; counts: as ``News`` has them."""

    pairs: Edges
    weights: Sequence[float]
    removed: Edges
    counts: dict[str, int]
    relations: Sequence[str] = ()


def without_unknown(
    delta: Delta, knows: Callable[[Sequence[NodeId]], Sequence[bool]]
) -> tuple[Delta, int]:
    """Return a delta without edges to nodes that neither come nor are known, and how many.

    knows: which of some ids are those of known nodes.

    >>> delta = Delta(nodes="ab", edges=[("a", "b"), ("b", "x")], weights=[1.0, 2.0])
    >>> reduced, skipped = without_unknown(delta, lambda ids: [False for _ in ids])
    >>> list(reduced.edges), reduced.weights, skipped
    ([('a', 'b')], [1.0], 1)
    """
    edges = edge_columns(delta.edges)
    beside = (delta.weights, delta.relations)
    if edges is None or any(len(part) not in (0, len(edges)) for part in beside):
        return delta, 0  # refused where a delta is checked
    asked = list({*listed(edges.sources), *listed(edges.targets)}.difference(delta.nodes))
    strange = {node for node, known in zip(asked, knows(asked), strict=True) if not known}
    kept = [row for row, pair in enumerate(edges) if strange.isdisjoint(pair)]
    reduced = replace(
        delta,
        edges=edges.take(np.array(kept, dtype=np.int64)),
        weights=[delta.weights[row] for row in kept] if len(delta.weights) else (),
        relations=[delta.relations[row] for row in kept] if len(delta.relations) else (),
    )
    return reduced, len(edges) - len(kept)


def related_edges(
    delta: Delta, ids: IdTable, knowledge: Knowledge | None, *, both_ways: bool
) -> NewEdges:
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
    removed = new_edges(plain, ids, knowledge, both_ways=both_ways)
    new = sum(known[edge] == 0 for edge in news)
    gone = sum(weight == 0 for weight in news.values())
    return NewEdges(
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


def new_edges(
    delta: Delta, ids: IdTable, knowledge: Knowledge | None, *, both_ways: bool
) -> NewEdges:
    """Return edges that are not known, each once; those to nowhere stay, to be refused.

    One that is given and removed at once comes to nothing, or goes.
    """
    edges, cut = edge_columns(delta.edges), edge_columns(delta.removed_edges)
    assert edges is not None, "parts were checked"
    assert cut is not None, "parts were checked"
    ends = _numbered(ids, *edges.sides, *cut.sides)
    names = edge_names(torch.cat([*ends], dim=1), both_ways=both_ways)
    come, go = names[: len(edges)], names[len(edges) :]
    kept = np.flatnonzero(~_is_loop(ends[0], delta, ids) & ~np.isin(come, go))
    first, last = _each_once(come[kept])
    rows, weights = kept[first], _weights_given(delta, kept[last])
    known = _weights(ends[0][:, rows], ids, knowledge)
    news = known == 0 if weights is None else weights.astype(np.float32) != known
    zero = np.zeros(len(rows), dtype=bool) if weights is None else weights == 0
    _, again = _each_once(go)  # as it was given last
    removed = cut.take(again[_weights(ends[1][:, again], ids, knowledge) > 0])
    new, gone, absent = news & (known == 0), news & zero, zero & (known == 0)
    return NewEdges(
        pairs=edges.take(rows[news]),
        weights=() if weights is None else weights[news].tolist(),
        removed=removed,
        counts={
            "new_edges": int(new.sum()),
            "known_edges": int(len(edges) - news.sum() - absent.sum()),
            "changed_weights": int(news.sum() - new.sum() - gone.sum()),
            "removed_edges": int(gone.sum()) + len(removed),
            "missing_edges": int(absent.sum()) + len(cut) - len(removed),
        },
    )


def _numbered(ids: IdTable, *sides: Column) -> tuple[Tensor, Tensor]:
    """Return ends of edges that come and of edges that go, ids that are not known numbered on.

    -> int64 [2, edges], int64 [2, removed]
    """
    found = [ids.where(side) for side in sides]
    strange = (
        compress(listed(side), (places < 0).tolist())
        for side, places in zip(sides, found, strict=True)
        if bool((places < 0).any())
    )
    numbers = dict(zip(dict.fromkeys(chain.from_iterable(strange)), count(ids.next), strict=False))
    if numbers:
        found = [ids.where(side, numbers) for side in sides]
    return torch.stack(found[:2]), torch.stack(found[2:])


def _is_loop(ends: Tensor, delta: Delta, ids: IdTable) -> NDArray[np.bool_]:
    """Return which edges join a node that there is, or will be, with itself."""
    loops = (ends[0] == ends[1]).numpy()
    if loops.any():
        new = frozenset(delta.nodes)
        for place in np.flatnonzero(loops).tolist():
            loops[place] = int(ends[0, place]) < ids.next or delta.edges[place][0] in new
    return loops


def _each_once(names: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each name comes first and where last, in the order in which they come.

    >>> [rows.tolist() for rows in _each_once(np.array([7, 3, 7]))]
    [[0, 1], [2, 1]]
    """
    _, first = np.unique(names, return_index=True)
    _, behind = np.unique(names[::-1], return_index=True)
    order = np.argsort(first)
    return first[order], len(names) - 1 - behind[order]


def _weights_given(delta: Delta, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return the weights that some edges are given, None where none are."""
    return np.array(delta.weights, dtype=np.float64)[rows] if len(delta.weights) else None


def _weights(ends: Tensor, ids: IdTable, knowledge: Knowledge | None) -> NDArray[np.float32]:
    """Return what edges weigh, 0 where they are not known.  int64 [2, m] -> float32 [m]"""
    if knowledge is None or not ends.shape[1]:
        return np.zeros(ends.shape[1], dtype=np.float32)
    sides = ends.where(ends < ids.next, -1)
    graph = knowledge.graph
    found = graph.weights_of(*sides) if graph.weighted else graph.lists(*sides).float()
    weights: NDArray[np.float32] = found.numpy()
    return weights


def _is_news(weight: float | None, known: float) -> bool:
    """Whether an edge of a weight, if it is given one, changes what is known of it."""
    return known == 0 if weight is None else float(np.float32(weight)) != known
