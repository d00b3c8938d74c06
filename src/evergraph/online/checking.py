"""Validation of a delta, before anything of it is applied.

Its parts are checked by themselves first, then against the graph, and ids become positions. Each
rule is checked for a whole part at once. Only if one is broken, the part is searched item by item,
for an error that names the first mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from evergraph.core.targets import OneClass, Target
from evergraph.graphs.validation import LEAST_WEIGHT, MOST_WEIGHT, WEIGHT_RULE, combined, edge_keys
from evergraph.online.delta import Delta, EdgeColumns, NodeId, edge_numbers, listed
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.identifiers import IdTable, check_ids, first_repeated

# Squares of embeddings of larger values would overflow float32.
LARGEST_FEATURE = 1e12
LONGEST_NAME = 200  # characters of a relation or a type
LONGEST_ID = 1024  # of an id or a label
LONGEST_KEY = 200
CLASSES = OneClass()


def pairs_of(delta: Delta) -> list[EdgeColumns]:
    """Return the edges and the removed edges of a delta as columns; raise unless all are pairs."""
    columns = []
    for what, edges in (("edge", delta.edges), ("removed edge", delta.removed_edges)):
        if not isinstance(edges, EdgeColumns):
            number = next(number for number, edge in enumerate(edges) if len(edge) != 2)
            raise DataError(f"{what} {number} must join two nodes, not {edges[number]!r}")
        columns.append(edges)
    return columns


FEATURELESS = (
    "there are no features: a column of ones is used, and nodes are classified by the labels "
    "nearby and by their degrees"
)


def with_ones(delta: Delta, graph: GrowingGraph | None) -> Delta:
    """Return a delta whose nodes have a column of ones if they, and those of the graph, have none.

    >>> with_ones(Delta(nodes=["a", "b"]), None).features.tolist()
    [[1.0], [1.0]]
    """
    count, features = len(delta.nodes), delta.features
    if not count or features.dim() != 2 or features.shape[1] or len(features) not in (0, count):
        return delta
    if graph is not None and not graph.is_featureless:
        raise DataError(
            f"features must be given for {count} new nodes, {graph.num_features} a node"
        )
    return replace(delta, features=torch.ones(count, 1))


def check_parts(delta: Delta, *, num_features: int | None, target: Target = CLASSES) -> None:
    """Raise unless the parts of a delta are valid by themselves, whatever the graph is."""
    _check_features("features", delta.features, len(delta.nodes), num_features)
    updated = delta.updated_features
    _check_features("updated_features", updated, len(delta.updated), num_features)
    _check_count("labels", delta.labels, "nodes", len(delta.nodes))
    target.check_all([label for label in delta.labels if label is not None])
    sides = [columns.sides for columns in pairs_of(delta)]
    check_weights(delta.weights, len(delta.edges))
    _check_count("relations", delta.relations, "edges", len(delta.edges))
    _check_names("relations", delta.relations)
    _check_count("types", delta.types, "nodes", len(delta.nodes))
    _check_names("types", delta.types, gaps=True)
    for pair in delta.late:
        if len(pair) != 2:
            raise DataError(f"a late label must be a node and its label, not {pair!r}")
    target.check_all([label for _, label in delta.late])
    for part in (delta.nodes, delta.updated, delta.forgotten):
        check_ids("id of a node", list(part))  # a list, since arrays are not allowed here
    for ids in (*sides, ([node for node, _ in delta.late],)):
        check_ids("id of a node", *ids)
    if delta.key is not None and type(delta.key) is not str:
        raise DataError(f"key must be text, not {delta.key!r}")


def _check_count(what: str, values: Sequence[Any], of: str, count: int) -> None:
    if len(values) not in (0, count):
        rule = f"{what} must be as many as {of} or none at all"
        raise DataError(f"{rule}, not {len(values)} for {count} {of}")


def _check_lengths(delta: Delta, target: Target) -> None:
    labels = chain(delta.labels, (label for _, label in delta.late))
    names_of_labels = (target.names(label) for label in labels if label is not None)
    parts: list[tuple[str, Iterable[Any], int]] = [
        ("id of a node", delta.nodes, LONGEST_ID),
        ("label", chain.from_iterable(names_of_labels), LONGEST_ID),
        ("key", () if delta.key is None else (delta.key,), LONGEST_KEY),
    ]
    for what, names, most in parts:
        texts = [name for name in names if type(name) is str]
        if texts and not 0 < min(map(len, texts)) <= max(map(len, texts)) <= most:
            wrong = next(text for text in texts if not 0 < len(text) <= most)
            wrong_text = f"{wrong[:20]!r}... of {len(wrong):,}" if wrong else "''"
            raise DataError(f"{what} must be a text of 1 to {most} characters, not {wrong_text}")


def _check_names(what: str, names: Sequence[str | None], *, gaps: bool = False) -> None:
    def is_name(name: object) -> bool:
        return gaps if name is None else isinstance(name, str) and 0 < len(name) <= LONGEST_NAME

    plain = set(map(type, names)) <= {str, type(None)}  # others may not be hashable
    if not all(map(is_name, set(names) if plain else names)):
        number = next(number for number, name in enumerate(names) if not is_name(name))
        rule = f"{what} must be names of 1 to {LONGEST_NAME} characters"
        raise DataError(f"{rule}, but number {number} is {names[number]!r}")


def check_weights(weights: Sequence[float], edges: int) -> None:
    """Raise unless there is a valid weight for every edge, or none at all."""
    if not len(weights):
        return
    _check_count("weights", weights, "edges", edges)
    # ``max`` compares exactly: as float64 an integer just above the limit would round down to it.
    if set(map(type, weights)) <= {int, float, np.float64} and max(weights) <= MOST_WEIGHT:
        values = np.array(weights, dtype=np.float64)
        if ((values == 0) | ((values >= LEAST_WEIGHT) & (values <= MOST_WEIGHT))).all():
            return
    for number, weight in enumerate(weights):
        if not is_weight(weight):
            raise DataError(f"edge {number} has weight {weight!r}: expected {WEIGHT_RULE}")


def is_weight(value: object) -> bool:
    """Whether a value may be the weight of an edge."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or LEAST_WEIGHT <= value <= MOST_WEIGHT


def weight_values(weights: Sequence[float]) -> NDArray[np.float32]:
    """Return weights rounded once, for writing and for applying alike.  float32 [weights]"""
    return np.array(weights, dtype=np.float64).astype(np.float32)


def row_by_row(features: Tensor) -> Tensor:
    """Return features as they are written and applied: contiguous, on the CPU.

    Even the strides are those of a matrix read back from bytes, where a width of 1 leaves a choice.
    """
    plain = features.device.type == "cpu" and not features.requires_grad
    rows = features.dim() == 2 and features.stride() == (features.shape[1], 1)
    if plain and (rows or not features.numel()):
        return features  # the usual case
    return features.detach().cpu().contiguous().reshape(-1).view(features.shape)


def _check_features(what: str, features: Tensor, nodes: int, width: int | None) -> None:
    if not nodes:
        if len(features):
            named = "new" if what == "features" else "updated"
            raise DataError(f"{what} have {len(features)} rows, but there are 0 {named} nodes")
        return
    if features.dim() != 2 or len(features) != nodes or not features.shape[1]:
        raise DataError(
            f"{what} have shape {tuple(features.shape)}: expected [{nodes}, dims], a row per node"
        )
    if width is not None and features.shape[1] != width:
        raise DataError(
            f"{what} have {features.shape[1]} columns, but those of the graph have {width}"
        )
    if features.dtype != torch.float32:
        raise DataError(f"{what} hold {features.dtype}: expected torch.float32")
    columns = features.shape[1]
    check_sizes(what, features.flatten(), lambda at: divmod(at, columns))


def check_sizes(what: str, values: Tensor, place: Callable[[int], tuple[int, int]]) -> None:
    """Raise unless values are finite and not too large; place: row and column of one of them."""
    within = values.abs() <= LARGEST_FEATURE  # False for NaN
    if not bool(within.all()):
        at = int((~within).nonzero()[0])
        row, column = place(at)
        raise DataError(
            f"{what} must be finite numbers of at most {LARGEST_FEATURE:g}, but row {row}, "
            f"column {column} holds {values[at].item()!r}"
        )


_NONE: Mapping[NodeId, int] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedDelta(Delta):
    """A delta that is valid for the graph it was checked against, with positions for its ids."""

    first: int  # position of the first new node
    ends: Tensor  # positions of the sources and targets of its edges.  int64 [2, edges]
    weighed: Tensor | None  # weights of its edges, None if not given.  float32 [edges]
    cut: Tensor  # positions of the sources and targets of removed edges.  int64 [2, removed_edges]
    renewed: Tensor  # positions of nodes whose features change.  int64 [updated]
    labelled: Tensor  # positions of nodes with late labels.  int64 [late]
    gone: Tensor  # positions of nodes to forget.  int64 [forgotten]

    __repr__ = Delta.__repr__


def check_delta(
    delta: Delta,
    ids: IdTable,
    *,
    num_features: int | None,
    graph: GrowingGraph | None = None,
    target: Target = CLASSES,
    undirected: bool = True,
    ahead: Mapping[NodeId, int] = _NONE,
    fresh: bool = False,
) -> CheckedDelta:
    """Return a delta ready to be applied to a graph with these nodes; raise if it is invalid.

    num_features, graph: None before the first node. ahead: new nodes of earlier deltas in the same
    batch, with their positions; edges and late labels may name them. fresh: whether the limits on
    lengths of names apply; deltas from a journal are accepted whatever the limits were then.
    """
    delta = with_ones(delta, graph)
    check_parts(delta, num_features=num_features, target=target)
    if fresh:
        _check_lengths(delta, target)
    _each_once("nodes", delta.nodes)
    if not ids.has_none_of(delta.nodes) or not ahead.keys().isdisjoint(delta.nodes):
        repeated = next(node for node in delta.nodes if node in ids or node in ahead)
        raise DuplicateNodeError(f"node {repeated!r} is in the graph already")
    first = ids.next + len(ahead)
    new = dict(zip(delta.nodes, range(first, first + len(delta.nodes)), strict=True))

    ends, cut = (
        torch.stack([ids.where(side, ahead, new) for side in columns.sides])
        for columns in pairs_of(delta)
    )
    if ends.numel() and int(ends.min()) < 0:
        row = int((ends < 0).any(0).nonzero()[0, 0])
        edge = delta.edges[row]
        unknown_node = edge[0] if int(ends[0, row]) < 0 else edge[1]
        raise LooseEdgeError(
            f"edge {row} joins {edge[0]!r} and {edge[1]!r}, but node {unknown_node!r} is not in the graph"
        )
    _check_cut(delta, ends, cut, graph, both_ways=undirected)
    # Everything as it would be read back from its bytes, so that a recovery applies the same bits:
    # features are contiguous, weights are rounded once, names are Python's own strings.
    as_read_back = {
        "features": row_by_row(delta.features),
        "updated_features": row_by_row(delta.updated_features),
        "relations": list(map(str, delta.relations)),
        "types": [None if name is None else str(name) for name in delta.types],
    }
    return CheckedDelta(
        **(vars(delta) | as_read_back),
        first=first,
        ends=ends,
        weighed=torch.from_numpy(weight_values(delta.weights)) if len(delta.weights) else None,
        cut=cut,
        renewed=_known("updated", delta.updated, ids),
        labelled=_known("late labels", [node for node, _ in delta.late], ids, ahead),
        gone=_known("forgotten", delta.forgotten, ids),
    )


def _check_cut(
    delta: Delta, ends: Tensor, cut: Tensor, graph: GrowingGraph | None, *, both_ways: bool
) -> None:
    """Raise if a removed edge does not exist.  ends, cut: of new and removed edges, int64 [2, m]

    An edge that the delta adds may be removed by it as well; each edge can be removed once.
    """
    if not cut.numel():
        return
    exists = np.zeros(cut.shape[1], dtype=bool)
    if graph is not None:
        exists = (graph.weights_of(*cut.where(cut < graph.num_nodes, -1)) > 0).numpy()
    names = edge_keys(torch.cat([ends, cut], dim=1), both_ways=both_ways)
    added_names, removed_names = names[: ends.shape[1]], names[ends.shape[1] :]
    if len(added_names):  # what the delta says last of an edge decides whether it is there
        stays = (ends[0] != ends[1]).numpy()  # self-loops and edges of weight 0 are not added
        if len(delta.weights):
            stays &= weight_values(delta.weights) > 0
        order = np.argsort(added_names, kind="stable")
        last_before = np.searchsorted(added_names[order], removed_names, side="right") - 1
        last_added = order[np.maximum(last_before, 0)]
        exists = np.where(
            (last_before >= 0) & (added_names[last_added] == removed_names),
            stays[last_added],
            exists,
        )
    is_first = np.zeros(len(removed_names), dtype=bool)
    is_first[np.unique(removed_names, return_index=True)[1]] = True
    if not (exists & is_first).all():
        number = int((~(exists & is_first)).argmax())
        edge = delta.removed_edges[number]
        raise UnknownEdgeError(
            f"removed edge {number} joins {edge[0]!r} and {edge[1]!r}, but the graph has no such "
            "edge"
        )


def _known(
    what: str, nodes: Sequence[NodeId], ids: IdTable, *ahead: Mapping[NodeId, int]
) -> Tensor:
    """Return the positions of nodes, which must be known and distinct.  -> int64 [nodes]"""
    _each_once(what, nodes)
    positions = ids.where(nodes, *ahead)
    if len(positions) and int(positions.min()) < 0:
        unknown = nodes[int((positions < 0).nonzero()[0, 0])]
        raise UnknownNodeError(f"{what} names node {unknown!r}, which is not in the graph")
    return positions


def _each_once(what: str, nodes: Sequence[NodeId]) -> None:
    if len(set(nodes)) < len(nodes):
        twice = first_repeated(nodes)
        raise DuplicateNodeError(f"{what} must name every node once, but {twice!r} comes twice")


def without_unknown(
    delta: Delta, knows: Callable[[Sequence[NodeId]], Sequence[bool]]
) -> tuple[Delta, int]:
    """Return a delta without edges to nodes that are neither new nor known, and their number.

    knows: returns which ids are known.

    >>> delta = Delta(nodes="ab", edges=[("a", "b"), ("b", "x")], weights=[1.0, 2.0])
    >>> reduced, skipped = without_unknown(delta, lambda ids: [False for _ in ids])
    >>> list(reduced.edges), reduced.weights, skipped
    ([('a', 'b')], [1.0], 1)
    """
    edges = delta.edges
    beside = (delta.weights, delta.relations)
    if not isinstance(edges, EdgeColumns) or any(
        len(part) not in (0, len(edges)) for part in beside
    ):
        return delta, 0  # rejected when the delta is checked
    ends = list({*listed(edges.sources), *listed(edges.targets)}.difference(delta.nodes))
    strange = {node for node, known in zip(ends, knows(ends), strict=True) if not known}
    kept = [row for row, pair in enumerate(edges) if strange.isdisjoint(pair)]
    reduced = replace(
        delta,
        edges=edges.take(np.array(kept, dtype=np.int64)),
        weights=[delta.weights[row] for row in kept] if len(delta.weights) else (),
        relations=[delta.relations[row] for row in kept] if len(delta.relations) else (),
    )
    return reduced, len(edges) - len(kept)


def without_repeats(delta: Delta, repeated: str, *, both_ways: bool) -> tuple[Delta, int]:
    """Return a delta whose rows for the same edge are combined, and how many repeat one.

    repeated, both_ways: as in ``graphs.validation.combined``. With ``last`` the delta stays as it is,
    since a learner keeps the last weight. An edge of an earlier delta gets the new weight.

    >>> delta = Delta(edges=[("a", "c"), ("c", "a")], weights=[100.0, 250.0])
    >>> combined, repeats = without_repeats(delta, "sum", both_ways=True)
    >>> list(combined.edges), combined.weights, repeats
    ([('a', 'c')], [350.0], 1)
    """
    edges, weights = delta.edges, None
    beside = (delta.weights, delta.relations)
    if not isinstance(edges, EdgeColumns) or any(len(p) not in (0, len(edges)) for p in beside):
        return delta, 0  # rejected when the delta is checked
    if not edges:
        return delta, 0
    if len(delta.weights):
        check_weights(delta.weights, len(edges))
        weights = torch.tensor(delta.weights, dtype=torch.float64)
    names = {name: number for number, name in enumerate(dict.fromkeys(delta.relations))}
    kinds = torch.tensor([names[name] for name in delta.relations]) if names else None
    numbers = edge_numbers(edges)
    edges_once = combined(numbers, weights, kinds, repeated=repeated, both_ways=both_ways)
    if len(edges_once.rows) == len(edges) and edges_once.weights is weights:
        return delta, edges_once.repeats
    rows = edges_once.rows.tolist()
    reduced = replace(
        delta,
        edges=edges.take(edges_once.rows.numpy()),
        weights=() if edges_once.weights is None else edges_once.weights.tolist(),
        relations=[delta.relations[row] for row in rows] if names else (),
    )
    return reduced, edges_once.repeats
