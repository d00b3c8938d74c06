"""What a delta must be before anything of it is applied: the one place where it is looked at.

First its parts by themselves, then against the graph; ids become positions. Each rule is looked at
for a whole part at once. Only where something is wrong the part is gone through one by one, for the
sentence that names the first mistake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
from evergraph.online.delta import Delta, EdgeColumns, NodeId, edge_columns, in_columns
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.identifiers import IdTable, check_ids
from evergraph.online.labels import check_told

# Squares of embeddings of larger values leave the range of float32.
LARGEST_FEATURE = 1e12
LONGEST_NAME = 200  # characters of a relation or a type
LONGEST_ID = 1024  # of an id or a label
LONGEST_KEY = 200


def check_parts(delta: Delta, *, num_features: int | None, kind: Kind = "class") -> None:
    """Raise unless the parts of a delta are sound by themselves, whatever the graph holds."""
    _check_features("features", delta.features, len(delta.nodes), num_features)
    updated = delta.updated_features
    _check_features("updated_features", updated, len(delta.updated), num_features)
    _check_labels(delta, kind)
    edges = _paired("edge", delta.edges)
    removed = _paired("removed edge", delta.removed_edges)
    check_weights(delta.weights, len(delta.edges))
    _check_names("relations", "edges", delta.relations, len(delta.edges))
    _check_names("types", "nodes", delta.types, len(delta.nodes), gaps=True)
    for pair in delta.late:
        if len(pair) != 2:
            raise DataError(f"a late label must be a node and its label, not {pair!r}")
    late = [node for node, _ in delta.late]
    _check_told(kind, [told for _, told in delta.late])
    for part in (delta.nodes, delta.updated, delta.forgotten):
        check_ids("id of a node", list(part))  # an array would be a column, and is none here
    for sides in (edges.sides, removed.sides, (late,)):
        check_ids("id of a node", *sides)
    if delta.key is not None and type(delta.key) is not str:
        raise DataError(f"key must be text, not {delta.key!r}")


def _check_lengths(delta: Delta, kind: Kind) -> None:
    """Raise unless all names that a delta brings are of a length that may be taken in."""
    told: list[Any] = [label for label in delta.labels if label is not None]
    told += [label for _, label in delta.late]
    labels: Iterable[Any] = chain.from_iterable(told) if kind == "labels" else told
    parts: list[tuple[str, Iterable[Any], int]] = [
        ("id of a node", delta.nodes, LONGEST_ID),
        ("label", () if kind == "numbers" else labels, LONGEST_ID),
        ("key", () if delta.key is None else (delta.key,), LONGEST_KEY),
    ]
    for what, names, most in parts:
        texts = [name for name in names if type(name) is str]
        if texts and not 0 < min(map(len, texts)) <= max(map(len, texts)) <= most:
            wrong = next(text for text in texts if not 0 < len(text) <= most)
            said = f"{wrong[:20]!r}... of {len(wrong):,}" if wrong else "''"
            raise DataError(f"{what} must be a text of 1 to {most} characters, not {said}")


def _paired(what: str, edges: Sequence[tuple[NodeId, NodeId]]) -> EdgeColumns:
    found = edge_columns(edges)
    if found is not None:
        return found
    for place, edge in enumerate(edges):
        if len(edge) != 2:
            raise DataError(f"{what} {place} must join two nodes, not {edge!r}")
    raise AssertionError("edges that are no pairs")


def _check_told(kind: Kind, values: Sequence[Any]) -> None:
    if not _are_told(kind, values):
        for value in values:
            check_told(kind, value)


def _are_told(kind: Kind, values: Sequence[Any]) -> bool:
    """Whether all values are what nodes are said to be; False where it takes a closer look."""
    kinds = set(map(type, values))
    if kind == "numbers":
        return kinds <= {int, float} and all(map(math.isfinite, values))
    if kind == "labels":
        return kinds <= {list, tuple} and _are_names(list(chain.from_iterable(values)))
    return _are_names(values)


def _are_names(values: Sequence[Any]) -> bool:
    try:
        check_ids("label", values)
    except DataError:
        return False
    return True


def _check_labels(delta: Delta, kind: Kind) -> None:
    if len(delta.labels) not in (0, len(delta.nodes)):
        raise DataError(
            f"labels must be as many as nodes or none at all, not {len(delta.labels)} for "
            f"{len(delta.nodes)} nodes"
        )
    _check_told(kind, [label for label in delta.labels if label is not None])


def _check_names(
    what: str, of: str, names: Sequence[str | None], count: int, *, gaps: bool = False
) -> None:
    """Raise unless there is a name for each or none at all; gaps: whether some may have none."""
    if len(names) not in (0, count):
        raise DataError(
            f"{what} must be as many as {of} or none at all, not {len(names)} for {count} {of}"
        )
    plain = {str, type(None)} if gaps else {str}
    if set(map(type, names)) <= plain and all(_is_name(name, gaps) for name in set(names)):
        return
    for place, name in enumerate(names):
        if not _is_name(name, gaps):
            raise DataError(
                f"{what} must be names of 1 to {LONGEST_NAME} characters, but number {place} is "
                f"{name!r}"
            )


def _is_name(name: object, gaps: bool) -> bool:
    if name is None:
        return gaps
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME


def plain_names(names: Sequence[str | None]) -> Sequence[str | None]:
    """Return names as Python's own texts: those of NumPy are no names to a table of names."""
    if set(map(type, names)) <= {str, type(None)}:
        return names
    return [None if name is None else str(name) for name in names]


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
    if _are_weights(weights):
        return
    for place, weight in enumerate(weights):
        if not is_weight(weight):
            raise DataError(f"edge {place} has weight {weight!r}: expected {WEIGHT_RULE}")


def _are_weights(weights: Sequence[float]) -> bool:
    """Whether all are sound; False where it takes a closer look."""
    # An integer above the largest weight may be rounded down to it, but is not the largest then.
    if not set(map(type, weights)) <= {int, float, np.float64} or max(weights) > MOST_WEIGHT:
        return False
    values = np.array(weights, dtype=np.float64)
    return bool(((values == 0) | ((values >= LEAST_WEIGHT) & (values <= MOST_WEIGHT))).all())


def is_weight(value: object) -> bool:
    """Whether a value may be the weight of an edge.

    >>> is_weight(2), is_weight(-1.0), is_weight(True)
    (True, False, False)
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or LEAST_WEIGHT <= value <= MOST_WEIGHT


def weight_values(weights: Sequence[float]) -> NDArray[np.float32]:
    """Return weights as they are written and applied, by the same rounding.  float32 [weights]"""
    return np.array(weights, dtype=np.float64).astype(np.float32)


def row_by_row(features: Tensor) -> Tensor:
    """Return features as they are written and applied: row by row, in the memory of the processor.

    Strides too are those of a matrix that was read back, even where a width of 1 leaves a choice.
    """
    plain = features.device.type == "cpu" and not features.requires_grad
    rows = features.dim() == 2 and features.stride() == (features.shape[1], 1)
    if plain and (rows or not features.numel()):
        return features  # as nearly all are
    return features.detach().cpu().contiguous().reshape(-1).view(features.shape)


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
    fresh: bool = False,
) -> CheckedDelta:
    """Return a delta ready to be applied to a graph with these nodes; raise unless it fits.

    num_features: how wide features are; None before the first node. graph: None before that. kind:
    what nodes are said to be, see ``check_told``. undirected: whether every edge runs both ways.
    ahead: nodes that come with earlier deltas of the same batch, and their positions; edges and
    late labels may name them. fresh: whether it is to be taken in now, and so has to keep to the
    lengths of names: what a journal holds was taken in, whatever the rule was then.

    >>> check_delta(Delta(edges=(("a", "b"),)), IdTable(), num_features=None)
    Traceback (most recent call last):
    evergraph.core.errors.LooseEdgeError: edge 0 joins 'a' and 'b', but node 'a' is not in the \
graph
    """
    delta = in_columns(delta)
    check_parts(delta, num_features=num_features, kind=kind)
    if fresh:
        _check_lengths(delta, kind)
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
        told=_known("late labels", [node for node, _ in delta.late], ids, ahead),
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
