"""The look at a delta one id at a time, in plain loops: what the look at whole columns must equal.

It says the same of every delta, with the same words. Features are left out: both look at them in
one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import (
    DataError,
    DuplicateNodeError,
    LooseEdgeError,
    UnknownEdgeError,
    UnknownNodeError,
)
from evergraph.core.targets import OneClass
from evergraph.graphs.validation import WEIGHT_RULE
from evergraph.online.checking import LONGEST_NAME, is_weight
from evergraph.online.delta import Delta, NodeId
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.identifiers import check_id

CLASSES = OneClass()
Positions = Mapping[NodeId, int]


def loop_check(
    delta: Delta,
    known: Positions,
    *,
    first: int,
    graph: GrowingGraph | None = None,
    undirected: bool = True,
) -> dict[str, Tensor]:
    """Return the positions of a delta's ids; raise unless it fits.

    known: where the nodes of the graph stand; first: where the first new node will.
    """
    _check_parts(delta)
    _each_once("nodes", delta.nodes)
    for node in delta.nodes:
        if node in known:
            raise DuplicateNodeError(f"node {node!r} is in the graph already")
    new = {node: first + place for place, node in enumerate(delta.nodes)}
    for place, edge in enumerate(delta.edges):
        for end in edge:
            if end not in known and end not in new:
                raise LooseEdgeError(
                    f"edge {place} joins {edge[0]!r} and {edge[1]!r}, but node {end!r} is not in "
                    "the graph"
                )
    both = (known, new)
    return {
        "ends": _ends(delta.edges, both),
        "cut": _cut(delta, both, graph, undirected),
        "renewed": _known("updated", delta.updated, known),
        "labelled": _known("late labels", [node for node, _ in delta.late], known),
        "gone": _known("forgotten", delta.forgotten, known),
    }


def _check_parts(delta: Delta) -> None:
    for label in delta.labels:
        if label is not None:
            CLASSES.check(label)
    for what, edges in (("edge", delta.edges), ("removed edge", delta.removed_edges)):
        for place, edge in enumerate(edges):
            if len(edge) != 2:
                raise DataError(f"{what} {place} must join two nodes, not {edge!r}")
    for place, weight in enumerate(delta.weights):
        if not is_weight(weight):
            raise DataError(f"edge {place} has weight {weight!r}: expected {WEIGHT_RULE}")
    _check_names("relations", delta.relations)
    _check_names("types", [name for name in delta.types if name is not None])
    for pair in delta.late:
        if len(pair) != 2:
            raise DataError(f"a late label must be a node and its label, not {pair!r}")
        CLASSES.check(pair[1])
    late = [node for node, _ in delta.late]
    parts = (delta.nodes, delta.updated, delta.forgotten, *delta.edges, *delta.removed_edges, late)
    for part in parts:
        for node in part:
            check_id("id of a node", node)


def _check_names(what: str, names: Sequence[Any]) -> None:
    for place, name in enumerate(names):
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise DataError(
                f"{what} must be names of 1 to {LONGEST_NAME} characters, but number {place} is "
                f"{name!r}"
            )


def _ends(edges: Sequence[tuple[NodeId, NodeId]], places: tuple[Positions, Positions]) -> Tensor:
    known, new = places
    rows = [[known.get(e[side], new.get(e[side], -1)) for e in edges] for side in (0, 1)]
    return torch.tensor(rows, dtype=torch.int64).view(2, len(edges))


def _cut(
    delta: Delta, both: tuple[Positions, Positions], graph: GrowingGraph | None, undirected: bool
) -> Tensor:
    name: Callable[[tuple[NodeId, NodeId]], object] = frozenset if undirected else tuple
    weights = delta.weights or [1.0] * len(delta.edges)
    weighed = zip(delta.edges, weights, strict=True)
    there = {name((a, b)): a != b and weight > 0 for (a, b), weight in weighed}
    cut = _ends(delta.removed_edges, both)
    kept = torch.zeros(cut.shape[1], dtype=torch.bool)
    if graph is not None:
        kept = graph.lists(*cut.where(cut < graph.num_nodes, -1))
    for place, (edge, known) in enumerate(zip(delta.removed_edges, kept.tolist(), strict=True)):
        if not there.get(name(edge), known):
            raise UnknownEdgeError(
                f"removed edge {place} joins {edge[0]!r} and {edge[1]!r}, but the graph has no "
                "such edge"
            )
        there[name(edge)] = False  # once
    return cut


def _known(what: str, nodes: Sequence[NodeId], known: Positions) -> Tensor:
    _each_once(what, nodes)
    for node in nodes:
        if node not in known:
            raise UnknownNodeError(f"{what} names node {node!r}, which is not in the graph")
    return torch.tensor([known[node] for node in nodes], dtype=torch.int64)


def _each_once(what: str, nodes: Sequence[NodeId]) -> None:
    seen: set[NodeId] = set()
    for node in nodes:
        if node in seen:
            raise DuplicateNodeError(f"{what} must name every node once, but {node!r} comes twice")
        seen.add(node)
