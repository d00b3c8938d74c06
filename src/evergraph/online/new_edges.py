"""Which edges of a dump change something: those that are not known, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, count
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.online.checking import edge_names
from evergraph.online.delta import Delta, NodeId
from evergraph.online.edge_columns import Column, edge_columns, listed
from evergraph.online.identifiers import IdTable

if TYPE_CHECKING:
    from evergraph.online.knowledge import Knowledge

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
