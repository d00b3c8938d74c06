"""What a delta must be before anything of it is applied: the one place where it is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import (
    DuplicateNodeError,
    LooseEdgeError,
    UnknownEdgeError,
    UnknownNodeError,
)
from evergraph.core.label_space import Kind
from evergraph.online.delta import Delta, NodeId
from evergraph.online.delta_parts import (
    check_parts,
    late_nodes,
    plain_names,
    row_by_row,
    weight_values,
)
from evergraph.online.edge_columns import edge_columns, in_columns
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.identifiers import IdTable

_NOBODY: Mapping[NodeId, int] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedDelta(Delta):
    """A delta that fits the graph it was checked against, with positions in place of ids.

    Attributes:
        first: the position that the first new node gets.
        ends: positions of the sources and targets of its edges.  int64 [2, edges]
        weighed: weights of its edges, None where none are given.  float32 [edges]
        cut: positions of the sources and targets of edges that go.  int64 [2, removed_edges]
        renewed: positions of the nodes that get other features.  int64 [updated]
        told: positions of the nodes whose labels are late.  int64 [late]
        gone: positions of the nodes to be forgotten.  int64 [forgotten]
    """

    first: int
    ends: Tensor
    weighed: Tensor | None
    cut: Tensor
    renewed: Tensor
    told: Tensor
    gone: Tensor

    __repr__ = Delta.__repr__


def check_delta(
    delta: Delta,
    ids: IdTable,
    *,
    num_features: int | None,
    graph: GrowingGraph | None = None,
    kind: Kind = "class",
    undirected: bool = True,
    ahead: Mapping[NodeId, int] = _NOBODY,
) -> CheckedDelta:
    """Return a delta ready to be applied to a graph with these nodes; raise unless it fits.

    num_features: how wide features are; None before the first node. graph: None before that. kind:
    what nodes are said to be, see ``check_told``. undirected: whether every edge runs both ways.
    ahead: nodes that come with earlier deltas of the same batch, and their positions; edges and
    late labels may name them.

    >>> check_delta(Delta(edges=(("a", "b"),)), IdTable(), num_features=None)
    Traceback (most recent call last):
    evergraph.core.errors.LooseEdgeError: edge 0 joins 'a' and 'b', but node 'a' is not in the \
graph
    """
    delta = in_columns(delta)
    check_parts(delta, num_features=num_features, kind=kind)
    _each_once("nodes", delta.nodes)
    _check_new(delta.nodes, ids, ahead)
    first = ids.next + len(ahead)
    new = dict(zip(delta.nodes, range(first, first + len(delta.nodes)), strict=True))
    ends = _ends(delta.edges, ids, ahead, new)
    return CheckedDelta(
        **(vars(delta) | _plain(delta)),
        first=first,
        ends=ends,
        weighed=torch.from_numpy(weight_values(delta.weights)) if len(delta.weights) else None,
        cut=_cut(delta, ends, ids, (ahead, new), graph, both_ways=undirected),
        renewed=_known("updated", delta.updated, ids),
        told=_known("late labels", late_nodes(delta.late), ids, ahead),
        gone=_known("forgotten", delta.forgotten, ids),
    )


def _plain(delta: Delta) -> dict[str, Any]:
    """Return parts of a sound delta as they are when it is read back from its bytes.

    So what is applied now and what a recovery applies are the same, bit for bit: ids and labels are
    Python's own, weights are rounded in one place (``weight_values``), features lie row by row.
    """
    return {
        "features": row_by_row(delta.features),
        "updated_features": row_by_row(delta.updated_features),
        "relations": plain_names(delta.relations),
        "types": plain_names(delta.types),
    }


def _check_new(nodes: Sequence[NodeId], ids: IdTable, ahead: Mapping[NodeId, int]) -> None:
    if ids.has_none_of(nodes) and ahead.keys().isdisjoint(nodes):
        return
    known = next(node for node in nodes if node in ids or node in ahead)
    raise DuplicateNodeError(f"node {known!r} is in the graph already")


def _ends(
    edges: Sequence[tuple[NodeId, NodeId]], ids: IdTable, *new: Mapping[NodeId, int]
) -> Tensor:
    """Return where the edges of a delta begin and end.  -> int64 [2, edges]"""
    found = _sides(edges, ids, *new)
    if found.numel() and int(found.min()) < 0:
        place = int((found < 0).any(0).nonzero()[0, 0])
        edge = edges[place]
        lost = edge[0] if int(found[0, place]) < 0 else edge[1]
        raise LooseEdgeError(
            f"edge {place} joins {edge[0]!r} and {edge[1]!r}, but node {lost!r} is not in the graph"
        )
    return found


def _sides(
    edges: Sequence[tuple[NodeId, NodeId]], ids: IdTable, *new: Mapping[NodeId, int]
) -> Tensor:
    """Return where edges begin and end, -1 where a node is not known.  -> int64 [2, edges]"""
    columns = edge_columns(edges)
    assert columns is not None, "edges were looked at before"
    if not len(columns):
        return torch.empty(2, 0, dtype=torch.int64)
    return torch.stack([ids.where(side, *new) for side in columns.sides])


def _cut(
    delta: Delta,
    ends: Tensor,
    ids: IdTable,
    new: Sequence[Mapping[NodeId, int]],
    graph: GrowingGraph | None,
    *,
    both_ways: bool,
) -> Tensor:
    """Return where the edges that go begin and end; raise where there is none.  int64 [2, m]

    An edge that comes with the delta may go with it as well, and each goes once.
    """
    if not len(delta.removed_edges):
        return ends[:, :0]
    cut = _sides(delta.removed_edges, ids, *new)
    kept = torch.zeros(cut.shape[1], dtype=torch.bool)
    if graph is not None:
        kept = graph.lists(*cut.where(cut < graph.num_nodes, -1))
    names = edge_names(torch.cat([ends, cut], dim=1), both_ways=both_ways)
    came, gone = names[: ends.shape[1]], names[ends.shape[1] :]
    there = _last_said(came, _stay(delta, ends), gone, kept.numpy()) & first_of_each(gone)
    if not there.all():
        place = int((~there).argmax())
        edge = delta.removed_edges[place]
        raise UnknownEdgeError(
            f"removed edge {place} joins {edge[0]!r} and {edge[1]!r}, but the graph has no such "
            "edge"
        )
    return cut


def edge_names(ends: Tensor, *, both_ways: bool) -> NDArray[np.int64]:
    """Return a number for each edge, the same for the same edge.  int64 [2, m] -> int64 [m]

    both_ways: whether (a, b) and (b, a) are one edge. A position of -1 is no node.

    >>> edge_names(torch.tensor([[0, 1, 2], [1, 0, 1]]), both_ways=True).tolist()
    [6, 6, 11]
    """
    one, other = (side.numpy() + 1 for side in ends)
    if both_ways:
        one, other = np.minimum(one, other), np.maximum(one, other)
    most = int(ends.max()) + 2 if ends.numel() else 1
    names: NDArray[np.int64] = one * most + other
    return names


def first_of_each(names: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where each name comes for the first time.  int64 [m] -> bool [m]

    >>> first_of_each(np.array([3, 3, 1, 3])).tolist()
    [True, False, True, False]
    """
    mask = np.zeros(len(names), dtype=bool)
    mask[np.unique(names, return_index=True)[1]] = True
    return mask


def _last_said(
    names: NDArray[np.int64],
    values: NDArray[np.bool_],
    asked: NDArray[np.int64],
    others: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return the last value that each name was given, or that of ``others`` where none was."""
    if not len(names):
        return others
    order = np.argsort(names, kind="stable")
    place = np.searchsorted(names[order], asked, side="right") - 1
    last = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (names[last] == asked), values[last], others)


def _stay(delta: Delta, ends: Tensor) -> NDArray[np.bool_]:
    """Return which edges of a delta are edges, being neither loops nor of weight 0."""
    joins = (ends[0] != ends[1]).numpy()
    return joins & (weight_values(delta.weights) > 0) if len(delta.weights) else joins


def _known(
    what: str, nodes: Sequence[NodeId], ids: IdTable, *ahead: Mapping[NodeId, int]
) -> Tensor:
    """Return where nodes are that must be known, each named once.  -> int64 [nodes]"""
    if not len(nodes):
        return torch.empty(0, dtype=torch.int64)
    _each_once(what, nodes)
    found = ids.where(nodes, *ahead)
    if len(found) and int(found.min()) < 0:
        unknown = nodes[int((found < 0).nonzero()[0, 0])]
        raise UnknownNodeError(f"{what} names node {unknown!r}, which is not in the graph")
    return found


def _each_once(what: str, nodes: Sequence[NodeId]) -> None:
    if len(set(nodes)) == len(nodes):
        return
    seen: set[NodeId] = set()
    for node in nodes:
        if node in seen:
            raise DuplicateNodeError(f"{what} must name every node once, but {node!r} comes twice")
        seen.add(node)
