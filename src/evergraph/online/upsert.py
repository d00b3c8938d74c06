"""Comparison of a delta or table with what the learner has: only the new part is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.core.targets import Target
from evergraph.graphs import UNLABELLED
from evergraph.graphs.validation import edge_keys
from evergraph.online.checking import CLASSES, check_parts, pairs_of, with_ones
from evergraph.online.delta import Delta, DeltaResult, EdgeColumns, NodeId, listed
from evergraph.online.graph.live_relations import LiveRelations
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge
from evergraph.tables.arrow import pa


def edges_beyond(
    ids: IdTable,
    knowledge: Knowledge | None,
    edges: tuple[pa.Array, pa.Array],
    without: Sequence[NodeId],
    *,
    both_ways: bool,
) -> tuple[EdgeColumns, int]:
    """Return known edges that are not among the given ones, and how many were compared.

    edges: of a table, ids as strings or int64; without: nodes whose edges are left out
    """
    if knowledge is None:
        return EdgeColumns([], []), 0
    if knowledge.relations is not None:
        raise ConfigurationError(
            "--sync must not be given with --edges if edges have relations: one of several between "
            "two nodes cannot be removed by itself"
        )
    given = torch.stack([ids.where(listed(side)) for side in edges])
    known = knowledge.graph.edges()
    known = known[:, ~torch.isin(known, ids.where(list(without))).any(0)]
    names = edge_keys(torch.cat([known, given], dim=1), both_ways=both_ways)
    distinct, first = np.unique(names[: known.shape[1]], return_index=True)
    rows = np.sort(first[~np.isin(distinct, names[known.shape[1] :])])
    sources, targets = ([ids.at(position) for position in side[rows].tolist()] for side in known)
    return EdgeColumns(sources, targets), len(distinct)


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
    is_known = (ids.where(delta.nodes) >= 0).numpy()
    known_rows = np.flatnonzero(is_known).tolist()
    new_rows = np.flatnonzero(~is_known).tolist()
    labels = delta.labels or (None,) * len(delta.nodes)
    new_labels = [labels[row] for row in new_rows]
    late, changed_labels = _late_labels(
        [*((delta.nodes[row], labels[row]) for row in known_rows), *delta.late],
        frozenset(node for node in delta.updated if node not in ids),
        ids,
        knowledge,
        target,
    )
    update_rows = np.flatnonzero(ids.where(delta.updated).numpy() >= 0).tolist()
    updated = _changed_rows(delta.updated, delta.updated_features, update_rows, ids, knowledge)
    other_features = _changed_rows(delta.nodes, delta.features, known_rows, ids, knowledge)
    forgotten = [node for node in delta.forgotten if node in ids]
    with_new_edges, edge_counts = new_edges(delta, ids, knowledge, both_ways=undirected)
    reduced = replace(
        with_new_edges,
        nodes=[delta.nodes[row] for row in new_rows],
        features=delta.features[new_rows] if new_rows else torch.zeros(0, 0),
        labels=new_labels,
        types=[delta.types[row] for row in new_rows] if len(delta.types) else [],
        updated=[delta.updated[row] for row in updated],
        updated_features=delta.updated_features[updated] if updated else torch.zeros(0, 0),
        late=late,
        forgotten=forgotten,
        key=None,
    )
    return reduced, News(
        **edge_counts,
        new_nodes=len(new_rows),
        known_nodes=len(known_rows),
        other_features=len(other_features),
        new_labels=len(new_labels) - new_labels.count(None) + len(late) - changed_labels,
        changed_labels=changed_labels,
        forgotten=len(forgotten),
        updated_nodes=len(updated),
        missing_nodes=len(delta.updated) - len(update_rows),
    )


def _late_labels(
    pairs: Sequence[tuple[NodeId, Any]],
    missing: frozenset[NodeId],
    ids: IdTable,
    knowledge: Knowledge | None,
    target: Target,
) -> tuple[list[tuple[NodeId, Any]], int]:
    """Return the pairs whose label is not that of the graph, and how many replace another.

    pairs: nodes and their labels, None if unknown; missing: nodes to update that do not exist
    """
    given = [(node, label) for node, label in pairs if label is not None and node not in missing]
    if knowledge is None:
        return given, 0
    positions = ids.where([node for node, _ in given])
    classes = torch.full_like(positions, UNLABELLED)
    classes[positions >= 0] = knowledge.labels.of(positions[positions >= 0])
    late, changed = [], 0
    for (node, label), number in zip(given, classes.tolist(), strict=True):
        if number == UNLABELLED:
            late.append((node, label))
        elif knowledge.classes.at(number) != target.key(label):
            late.append((node, label))
            changed += 1
    return late, changed


def _changed_rows(
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
    edges, removed = pairs_of(delta)
    ends, removed_ends = _numbered_ends(edges, removed, ids)
    names = edge_keys(torch.cat([ends, removed_ends], dim=1), both_ways=both_ways)
    added_names, removed_names = names[: len(edges)], names[len(edges) :]
    kept = np.flatnonzero(~_known_loops(delta, ends, ids) & ~np.isin(added_names, removed_names))
    if len(delta.relations):
        kinds = np.unique(delta.relations, return_inverse=True)[1]
        related = np.stack([edge_keys(ends, both_ways=False), kinds])
        added_names = np.unique(related, axis=1, return_inverse=True)[1].reshape(-1)
    first, last = _each_once(added_names[kept])
    rows = kept[first]
    relations = [delta.relations[row] for row in rows.tolist()] if len(delta.relations) else []
    weights_before = _weights(ends[:, rows], ids, knowledge, relations)
    is_unknown = weights_before == 0
    is_zero = np.zeros(len(rows), dtype=bool)
    is_change = is_unknown
    weights: NDArray[np.float64] | None = None
    if len(delta.weights):  # the last weight of a repeated edge counts
        weights = np.array(delta.weights, dtype=np.float64)[kept[last]]
        is_zero = weights == 0
        is_change = weights.astype(np.float32) != weights_before
    _, last_removal = _each_once(removed_names)
    is_there = _weights(removed_ends[:, last_removal], ids, knowledge) > 0
    cut = removed.take(last_removal[is_there])
    new = int((is_change & is_unknown).sum())
    emptied = int((is_change & is_zero).sum())
    absent = int((is_zero & is_unknown).sum())
    changes = int(is_change.sum())
    counts = {
        "new_edges": new,
        "known_edges": len(edges) - changes - absent,
        "changed_weights": changes - new - emptied,
        "removed_edges": emptied + len(cut),
        "missing_edges": absent + len(removed) - len(cut),
    }
    return replace(
        delta,
        edges=edges.take(rows[is_change]),
        weights=() if weights is None else weights[is_change].tolist(),
        relations=list(compress(relations, is_change.tolist())),
        removed_edges=cut,
    ), counts


def _numbered_ends(edges: EdgeColumns, removed: EdgeColumns, ids: IdTable) -> tuple[Tensor, Tensor]:
    """Return the positions of the ends of edges; unknown ids get further numbers.

    -> int64 [2, edges], [2, removed]
    """
    sides = (*edges.sides, *removed.sides)
    positions = [ids.where(side) for side in sides]
    unknown: dict[NodeId, int] = {}
    for side, numbers in zip(sides, positions, strict=True):
        if bool((numbers < 0).any()):
            for node in compress(listed(side), (numbers < 0).tolist()):
                unknown.setdefault(node, ids.next + len(unknown))
    if unknown:
        positions = [ids.where(side, unknown) for side in sides]
    return torch.stack(positions[:2]), torch.stack(positions[2:])


def _known_loops(delta: Delta, ends: Tensor, ids: IdTable) -> NDArray[np.bool_]:
    """Return which edges join a known or new node to itself.  int64 [2, m] -> bool [m]"""
    loops: NDArray[np.bool_] = (ends[0] == ends[1]).numpy()
    if loops.any():
        new_nodes = frozenset(delta.nodes)
        for row in np.flatnonzero(loops).tolist():
            loops[row] = int(ends[0, row]) < ids.next or delta.edges[row][0] in new_nodes
    return loops


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
