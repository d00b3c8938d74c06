"""Comparison of a delta or table with what the learner has: only the new part is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.core.targets import Target
from evergraph.graphs import UNLABELLED
from evergraph.graphs.validation import edge_names
from evergraph.online.checking import CLASSES, check_parts, pairs_of, with_ones
from evergraph.online.delta import Delta, DeltaResult, NodeId, listed
from evergraph.online.graph.live_relations import LiveRelations
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge
from evergraph.tables.arrow import pa


@dataclass(frozen=True)
class EdgesBeyond:
    """Known edges that a table does not have."""

    sources: list[NodeId]  # ids of their sources
    targets: list[NodeId]  # ids of their targets
    known: int  # how many edges were compared


def edges_beyond(
    ids: IdTable,
    knowledge: Knowledge | None,
    edges: tuple[pa.Array, pa.Array],
    without: Sequence[NodeId],
    *,
    both_ways: bool,
) -> EdgesBeyond:
    """Return known edges that are not among the given ones, to be removed.

    edges: of a table, ids as strings or int64; without: nodes whose edges are left out
    """
    if knowledge is None:
        return EdgesBeyond([], [], 0)
    if knowledge.relations is not None:
        raise ConfigurationError(
            "--sync must not be given with --edges if edges have relations: one of several between "
            "two nodes cannot be removed by itself"
        )
    given = torch.stack([ids.where(listed(side)) for side in edges])
    known = knowledge.graph.edges()
    known = known[:, ~torch.isin(known, ids.where(list(without))).any(0)]
    names = edge_names(torch.cat([known, given], dim=1), both_ways=both_ways)
    distinct, first = np.unique(names[: known.shape[1]], return_index=True)
    gone = np.sort(first[~np.isin(distinct, names[known.shape[1] :])])
    sources, targets = ([ids.at(position) for position in side[gone].tolist()] for side in known)
    return EdgesBeyond(sources, targets, len(distinct))


@dataclass(frozen=True)
class News:
    """What was new in a delta, in numbers that JSON can hold."""

    new_nodes: int = 0  # nodes added
    known_nodes: int = 0  # nodes skipped because they were known
    other_features: int = 0  # known nodes whose given features differ; they keep their own
    new_edges: int = 0  # edges added, each counted once
    known_edges: int = 0  # edges skipped: known ones, self-loops and repetitions
    new_labels: int = 0  # labels of nodes that had none
    changed_labels: int = 0  # labels of nodes that had another
    forgotten: int = 0  # nodes forgotten
    changed_weights: int = 0  # known edges with a new weight
    removed_edges: int = 0  # edges removed
    missing_edges: int = 0  # edges to remove that did not exist
    updated_nodes: int = 0  # known nodes with new features
    missing_nodes: int = 0  # nodes to update that did not exist


@dataclass(frozen=True)
class Upserted:
    """The result of an upsert."""

    # the result of the new part; if nothing was new, ``seq`` is that of the last delta
    applied: DeltaResult
    news: News  # what was new


def only_new(
    delta: Delta,
    ids: IdTable,
    knowledge: Knowledge | None,
    *,
    target: Target = CLASSES,
    undirected: bool = True,
) -> tuple[Delta, News]:
    """Return a delta without what is known already, and the counts of what is new.

    Labels of known nodes become late labels if they differ; their features change only if they are
    among the ``updated``. What is left is an ordinary delta without a key; repeated, it would be
    empty.
    """
    delta = with_ones(delta, None if knowledge is None else knowledge.graph)
    width = None if knowledge is None else knowledge.num_features
    check_parts(delta, num_features=width, target=target)
    there = (ids.where(delta.nodes) >= 0).numpy()
    known, new = np.flatnonzero(there).tolist(), np.flatnonzero(~there).tolist()
    labels = delta.labels or (None,) * len(delta.nodes)
    labelled = [(delta.nodes[row], label) for row in known if (label := labels[row]) is not None]
    to_update = np.flatnonzero(ids.where(delta.updated).numpy() >= 0).tolist()
    updated = _other(delta.updated, delta.updated_features, to_update, ids, knowledge)
    nowhere = {node for node in delta.updated if node not in ids}
    later = [pair for pair in delta.late if pair[0] not in nowhere]
    late, changed = [*labelled, *later], 0
    if knowledge is not None:  # labels that differ from those of the graph
        positions = ids.where([node for node, _ in late])
        numbers = torch.full_like(positions, UNLABELLED)
        numbers[positions >= 0] = knowledge.labels.of(positions[positions >= 0])
        pairs, late = zip(late, numbers.tolist(), strict=True), []
        for (node, label), number in pairs:
            had = number != UNLABELLED
            if not had or knowledge.classes.at(number) != target.key(label):
                late.append((node, label))
                changed += had
    joined, counts = new_edges(delta, ids, knowledge, both_ways=undirected)
    first = [labels[row] for row in new]
    forgotten = [node for node in delta.forgotten if node in ids]
    reduced = replace(
        joined,
        nodes=[delta.nodes[row] for row in new],
        features=delta.features[new] if new else torch.zeros(0, 0),
        labels=first,
        types=[delta.types[row] for row in new] if len(delta.types) else [],
        updated=[delta.updated[row] for row in updated],
        updated_features=delta.updated_features[updated] if updated else torch.zeros(0, 0),
        late=late,
        forgotten=forgotten,
        key=None,
    )
    return reduced, News(
        **counts,
        new_nodes=len(new),
        known_nodes=len(known),
        other_features=len(_other(delta.nodes, delta.features, known, ids, knowledge)),
        new_labels=len(first) - first.count(None) + len(late) - changed,
        changed_labels=changed,
        forgotten=len(forgotten),
        updated_nodes=len(updated),
        missing_nodes=len(delta.updated) - len(to_update),
    )


def _other(
    nodes: Sequence[NodeId],
    features: Tensor,
    rows: list[int],
    ids: IdTable,
    knowledge: Knowledge | None,
) -> list[int]:
    """Return those of some rows, all of known nodes, whose features are not those of the graph."""
    if knowledge is None or not rows:
        return []
    known = knowledge.features_of(ids.positions([nodes[row] for row in rows]))
    return list(compress(rows, (known != features[rows]).any(1).tolist()))


def new_edges(
    delta: Delta, ids: IdTable, knowledge: Knowledge | None, *, both_ways: bool
) -> tuple[Delta, dict[str, int]]:
    """Reduce edges to new ones, each once; those to unknown nodes stay, to be rejected later.

    An edge that is both added and removed is not added; edges of different relations are different
    edges, which have a direction. Counts are as in ``News``.
    """
    edges, cut = pairs_of(delta)
    # Positions of their ends; unknown ids get further numbers.
    sides = (*edges.sides, *cut.sides)
    found = [ids.where(side) for side in sides]
    strange = (
        compress(listed(side), (positions < 0).tolist())
        for side, positions in zip(sides, found, strict=True)
        if bool((positions < 0).any())
    )
    numbers = dict(zip(dict.fromkeys(chain.from_iterable(strange)), count(ids.next), strict=False))
    if numbers:
        found = [ids.where(side, numbers) for side in sides]
    ends = torch.stack(found[:2]), torch.stack(found[2:])
    names = edge_names(torch.cat([*ends], dim=1), both_ways=both_ways)
    come, go = names[: len(edges)], names[len(edges) :]
    loops = (ends[0][0] == ends[0][1]).numpy()
    if loops.any():  # those of unknown nodes stay
        new_nodes = frozenset(delta.nodes)
        for row in np.flatnonzero(loops).tolist():
            loops[row] = int(ends[0][0, row]) < ids.next or delta.edges[row][0] in new_nodes
    kept = np.flatnonzero(~loops & ~np.isin(come, go))
    if related := len(delta.relations) > 0:
        kinds = np.unique(delta.relations, return_inverse=True)[1]
        named = np.stack([edge_names(ends[0], both_ways=False), kinds])
        come = np.unique(named, axis=1, return_inverse=True)[1].reshape(-1)
    first, last = _each_once(come[kept])
    rows = kept[first]
    weights: NDArray[np.float64] | None = None
    if len(delta.weights):  # the last weight of a repeated edge counts
        weights = np.array(delta.weights, dtype=np.float64)[kept[last]]
    relations = [delta.relations[row] for row in rows.tolist()] if related else []
    known = _weights(ends[0][:, rows], ids, knowledge, relations)
    news = known == 0 if weights is None else weights.astype(np.float32) != known
    zero = np.zeros(len(rows), dtype=bool) if weights is None else weights == 0
    _, again = _each_once(go)  # the last occurrence of each
    removed = cut.take(again[_weights(ends[1][:, again], ids, knowledge) > 0])
    new, gone, absent = news & (known == 0), news & zero, zero & (known == 0)
    counts = {
        "new_edges": int(new.sum()),
        "known_edges": int(len(edges) - news.sum() - absent.sum()),
        "changed_weights": int(news.sum() - new.sum() - gone.sum()),
        "removed_edges": int(gone.sum()) + len(removed),
        "missing_edges": int(absent.sum()) + len(cut) - len(removed),
    }
    changed = () if weights is None else weights[news].tolist()
    return replace(
        delta,
        edges=edges.take(rows[news]),
        weights=changed,
        relations=list(compress(relations, news.tolist())),
        removed_edges=removed,
    ), counts


def _each_once(names: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the first and the last occurrence of each name, in order of the first."""
    _, first = np.unique(names, return_index=True)
    _, from_end = np.unique(names[::-1], return_index=True)
    order = np.argsort(first)
    return first[order], len(names) - 1 - from_end[order]


def _weights(
    ends: Tensor, ids: IdTable, knowledge: Knowledge | None, relations: Sequence[str] = ()
) -> NDArray[np.float32]:
    """Return the weights of edges, 0 for unknown ones.  int64 [2, m] -> float32 [m]"""
    known = None if knowledge is None else knowledge.relations if relations else knowledge.graph
    if known is None or not ends.shape[1]:
        return np.zeros(ends.shape[1], dtype=np.float32)
    sides = ends.where(ends < ids.next, -1)
    if isinstance(known, LiveRelations):
        found = known.weights_of(sides, relations)
    else:
        found = known.weights_of(*sides)
    weights: NDArray[np.float32] = found.numpy()
    return weights
