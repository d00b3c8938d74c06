"""What a delta must be before anything of it is applied: the one place where it is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.errors import DataError, DuplicateNodeError, LooseEdgeError, UnknownNodeError
from evergraph.core.label_space import Kind
from evergraph.online.answers import check_told
from evergraph.online.delta import Delta, NodeId
from evergraph.online.identifiers import IdTable, check_id

# Squares of embeddings of larger values leave the range of float32.
LARGEST_FEATURE = 1e12


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedDelta(Delta):
    """A delta that fits the graph it was checked against, with positions in place of ids.

    Attributes:
        first: the position that the first new node gets.
        ends: positions of the sources and targets of its edges.  int64 [2, edges]
        told: positions of the nodes whose labels are late.  int64 [late]
        gone: positions of the nodes to be forgotten.  int64 [forgotten]
    """

    first: int
    ends: Tensor
    told: Tensor
    gone: Tensor

    __repr__ = Delta.__repr__


def check_delta(
    delta: Delta, ids: IdTable, *, num_features: int | None, kind: Kind = "class"
) -> CheckedDelta:
    """Return a delta ready to be applied to a graph with these nodes; raise unless it fits.

    num_features: how wide features are; None before the first node. kind: what nodes are said to
    be, see ``check_told``.

    >>> check_delta(Delta(edges=(("a", "b"),)), IdTable(), num_features=None)
    Traceback (most recent call last):
    evergraph.core.errors.LooseEdgeError: edge 0 joins 'a' and 'b', but node 'a' is not in the \
graph
    """
    check_parts(delta, num_features=num_features, kind=kind)
    _each_once("nodes", delta.nodes)
    for node in delta.nodes:
        if node in ids:
            raise DuplicateNodeError(f"node {node!r} is in the graph already")
    late = [node for node, _ in delta.late]
    first = ids.next
    new = {node: first + place for place, node in enumerate(delta.nodes)}
    return CheckedDelta(
        **vars(delta),
        first=first,
        ends=_ends(delta.edges, ids, new),
        told=_known("late labels", late, ids),
        gone=_known("forgotten", delta.forgotten, ids),
    )


def check_parts(delta: Delta, *, num_features: int | None, kind: Kind = "class") -> None:
    """Raise unless the parts of a delta are sound by themselves, whatever the graph holds."""
    _check_features(delta.features, len(delta.nodes), num_features)
    _check_labels(delta, kind)
    for place, edge in enumerate(delta.edges):
        if len(edge) != 2:
            raise DataError(f"edge {place} must join two nodes, not {edge!r}")
    for pair in delta.late:
        if len(pair) != 2:
            raise DataError(f"a late label must be a node and its label, not {pair!r}")
        check_told(kind, pair[1])
    for part in (delta.nodes, delta.forgotten, *delta.edges, [node for node, _ in delta.late]):
        for node in part:
            check_id("id of a node", node)
    if delta.key is not None and type(delta.key) is not str:
        raise DataError(f"key must be text, not {delta.key!r}")


def _check_features(features: Tensor, nodes: int, width: int | None) -> None:
    if not nodes:
        if len(features):
            raise DataError(f"features have {len(features)} rows, but there are 0 new nodes")
        return
    if features.dim() != 2 or len(features) != nodes or not features.shape[1]:
        raise DataError(
            f"features have shape {tuple(features.shape)}: expected [{nodes}, dims], a row a node"
        )
    if width is not None and features.shape[1] != width:
        raise DataError(
            f"features have {features.shape[1]} columns, but those of the graph have {width}"
        )
    if features.dtype != torch.float32:
        raise DataError(f"features hold {features.dtype}: expected torch.float32")
    within = features.abs() <= LARGEST_FEATURE  # False for NaN
    if not bool(within.all()):
        row, column = (~within).nonzero()[0].tolist()
        raise DataError(
            f"features must be finite numbers of at most {LARGEST_FEATURE:g}, but row {row}, "
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


def _known(what: str, nodes: Sequence[NodeId], ids: IdTable) -> Tensor:
    """Return where nodes are that must be known, each named once.  -> int64 [nodes]"""
    _each_once(what, nodes)
    for node in nodes:
        if node not in ids:
            raise UnknownNodeError(f"{what} names node {node!r}, which is not in the graph")
    return ids.positions(nodes)


def _each_once(what: str, nodes: Sequence[NodeId]) -> None:
    seen: set[NodeId] = set()
    for node in nodes:
        if node in seen:
            raise DuplicateNodeError(f"{what} must name every node once, but {node!r} comes twice")
        seen.add(node)
