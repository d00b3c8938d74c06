"""What a delta must be before anything of it is applied: the one place where it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.errors import (
    DataError,
    DuplicateNodeError,
    LooseEdgeError,
    UnknownEdgeError,
    UnknownNodeError,
)
from evergraph.core.label_space import Kind
from evergraph.graphs.validation import LEAST_WEIGHT, MOST_WEIGHT, WEIGHT_RULE
from evergraph.online.answers import check_told
from evergraph.online.delta import Delta, NodeId
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.identifiers import IdTable, check_id

# Squares of embeddings of larger values leave the range of float32.
LARGEST_FEATURE = 1e12
LONGEST_NAME = 200  # of a relation or a type
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
    ahead: nodes that come right before it with deltas of the same batch, and their positions.

    >>> check_delta(Delta(edges=(("a", "b"),)), IdTable(), num_features=None)
    Traceback (most recent call last):
    evergraph.core.errors.LooseEdgeError: edge 0 joins 'a' and 'b', but node 'a' is not in the \
graph
    """
    check_parts(delta, num_features=num_features, kind=kind)
    _each_once("nodes", delta.nodes)
    for node in delta.nodes:
        if node in ids or node in ahead:
            raise DuplicateNodeError(f"node {node!r} is in the graph already")
    late = [node for node, _ in delta.late]
    first = ids.next + len(ahead)
    own = {node: first + place for place, node in enumerate(delta.nodes)}
    new: Mapping[NodeId, int] = {**ahead, **own} if ahead else own
    ends = _ends(delta.edges, ids, new)
    weighed = torch.tensor(delta.weights, dtype=torch.float32) if len(delta.weights) else None
    return CheckedDelta(
        **vars(delta),
        first=first,
        ends=ends,
        weighed=weighed,
        cut=_cut(delta, ids, new, graph, both_ways=undirected)
        if len(delta.removed_edges)
        else ends[:, :0],
        renewed=_known("updated", delta.updated, ids),
        told=_known("late labels", late, ids, ahead),
        gone=_known("forgotten", delta.forgotten, ids),
    )


def check_parts(delta: Delta, *, num_features: int | None, kind: Kind = "class") -> None:
    """Raise unless the parts of a delta are sound by themselves, whatever the graph holds."""
    _check_features("features", delta.features, len(delta.nodes), num_features)
    updated = delta.updated_features
    _check_features("updated_features", updated, len(delta.updated), num_features)
    _check_labels(delta, kind)
    _check_pairs("edge", delta.edges)
    _check_pairs("removed edge", delta.removed_edges)
    check_weights(delta.weights, len(delta.edges))
    _check_names("relations", "edges", delta.relations, len(delta.edges))
    _check_names("types", "nodes", delta.types, len(delta.nodes), gaps=True)
    for pair in delta.late:
        if len(pair) != 2:
            raise DataError(f"a late label must be a node and its label, not {pair!r}")
        check_told(kind, pair[1])
    late = [node for node, _ in delta.late]
    pairs = (*delta.edges, *delta.removed_edges)
    for part in (delta.nodes, delta.updated, delta.forgotten, *pairs, late):
        for node in part:
            check_id("id of a node", node)
    if delta.key is not None and type(delta.key) is not str:
        raise DataError(f"key must be text, not {delta.key!r}")


def _check_pairs(what: str, edges: Sequence[tuple[NodeId, NodeId]]) -> None:
    for place, edge in enumerate(edges):
        if len(edge) != 2:
            raise DataError(f"{what} {place} must join two nodes, not {edge!r}")


def _check_names(
    what: str, of: str, names: Sequence[str | None], count: int, *, gaps: bool = False
) -> None:
    """Raise unless there is a name for each or none at all; gaps: whether some may have none."""
    if len(names) not in (0, count):
        raise DataError(
            f"{what} must be as many as {of} or none at all, not {len(names)} for {count} {of}"
        )
    for place, name in enumerate(names):
        if name is None and gaps:
            continue
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise DataError(
                f"{what} must be names of 1 to {LONGEST_NAME} characters, but number {place} is "
                f"{name!r}"
            )


def check_weights(weights: Sequence[float], edges: int) -> None:
    """Raise unless there is a weight for every edge or none at all, and all are sound.

    >>> check_weights([1.0, -2.0], 2)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: edge 1 has weight -2.0: expected 0, for no edge, or a number \
from 1e-18 to 1e+18
    """
    if not len(weights):
        return
    if len(weights) != edges:
        raise DataError(
            f"weights must be as many as edges or none at all, not {len(weights)} for {edges} edges"
        )
    for place, weight in enumerate(weights):
        if not is_weight(weight):
            raise DataError(f"edge {place} has weight {weight!r}: expected {WEIGHT_RULE}")


def is_weight(value: object) -> bool:
    """Whether a value may be the weight of an edge.

    >>> is_weight(2), is_weight(-1.0), is_weight(True)
    (True, False, False)
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or LEAST_WEIGHT <= value <= MOST_WEIGHT


def _check_features(what: str, features: Tensor, nodes: int, width: int | None) -> None:
    if not nodes:
        if len(features):
            named = "new" if what == "features" else "updated"
            raise DataError(f"{what} have {len(features)} rows, but there are 0 {named} nodes")
        return
    if features.dim() != 2 or len(features) != nodes or not features.shape[1]:
        raise DataError(
            f"{what} have shape {tuple(features.shape)}: expected [{nodes}, dims], a row a node"
        )
    if width is not None and features.shape[1] != width:
        raise DataError(
            f"{what} have {features.shape[1]} columns, but those of the graph have {width}"
        )
    if features.dtype != torch.float32:
        raise DataError(f"{what} hold {features.dtype}: expected torch.float32")
    within = features.abs() <= LARGEST_FEATURE  # False for NaN
    if not bool(within.all()):
        row, column = (~within).nonzero()[0].tolist()
        raise DataError(
            f"{what} must be finite numbers of at most {LARGEST_FEATURE:g}, but row {row}, "
            f"column {column} holds {features[row, column].item()!r}"
        )


def _check_labels(delta: Delta, kind: Kind) -> None:
    if len(delta.labels) not in (0, len(delta.nodes)):
        raise DataError(
            f"labels must be as many as nodes or none at all, not {len(delta.labels)} for "
            f"{len(delta.nodes)} nodes"
        )
    for label in delta.labels:
        if label is not None:
            check_told(kind, label)


def _ends(
    edges: Sequence[tuple[NodeId, NodeId]], ids: IdTable, new: Mapping[NodeId, int]
) -> Tensor:
    """Return where the edges of a delta begin and end.  -> int64 [2, edges]"""
    for place, edge in enumerate(edges):
        for end in edge:
            if end not in ids and end not in new:
                raise LooseEdgeError(
                    f"edge {place} joins {edge[0]!r} and {edge[1]!r}, but node {end!r} is not in "
                    "the graph"
                )
    sides = [ids.positions(side, new=new) for side in zip(*edges, strict=True)]
    return torch.stack(sides) if sides else torch.empty(2, 0, dtype=torch.int64)


def _cut(
    delta: Delta,
    ids: IdTable,
    new: Mapping[NodeId, int],
    graph: GrowingGraph | None,
    *,
    both_ways: bool,
) -> Tensor:
    """Return where the edges that go begin and end; raise where there is none.  int64 [2, m]

    An edge that comes with the delta may go with it as well.
    """
    name: Callable[[tuple[NodeId, NodeId]], object] = frozenset if both_ways else tuple
    there = dict(zip(map(name, delta.edges), _stay(delta), strict=True))
    sides = [_where(side, ids, new) for side in zip(*delta.removed_edges, strict=True)]
    kept = torch.zeros(len(sides[0]), dtype=torch.bool)
    if graph is not None:
        kept = graph.lists(*(side.where(side < graph.num_nodes, -1) for side in sides))
    for place, (edge, known) in enumerate(zip(delta.removed_edges, kept.tolist(), strict=True)):
        if not there.get(name(edge), known):
            raise UnknownEdgeError(
                f"removed edge {place} joins {edge[0]!r} and {edge[1]!r}, but the graph has no "
                "such edge"
            )
        there[name(edge)] = False  # once
    return torch.stack(sides)


def _stay(delta: Delta) -> list[bool]:
    """Return which edges of a delta are edges, being neither loops nor of weight 0."""
    weights = delta.weights or [1.0] * len(delta.edges)
    return [a != b and weight > 0 for (a, b), weight in zip(delta.edges, weights, strict=True)]


def _where(nodes: Sequence[NodeId], ids: IdTable, new: Mapping[NodeId, int]) -> Tensor:
    places = ids.where(nodes)
    fresh = torch.tensor([new.get(node, -1) for node in nodes], dtype=torch.int64)
    return places.maximum(fresh)


def _known(
    what: str, nodes: Sequence[NodeId], ids: IdTable, ahead: Mapping[NodeId, int] = _NOBODY
) -> Tensor:
    """Return where nodes are that must be known, each named once.  -> int64 [nodes]"""
    _each_once(what, nodes)
    for node in nodes:
        if node not in ids and node not in ahead:
            raise UnknownNodeError(f"{what} names node {node!r}, which is not in the graph")
    return ids.positions(nodes, new=ahead)


def _each_once(what: str, nodes: Sequence[NodeId]) -> None:
    seen: set[NodeId] = set()
    for node in nodes:
        if node in seen:
            raise DuplicateNodeError(f"{what} must name every node once, but {node!r} comes twice")
        seen.add(node)
