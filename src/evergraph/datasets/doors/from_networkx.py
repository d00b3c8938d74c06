"""Graphs of NetworkX: attributes of nodes and edges become features, labels and weights."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.notices import say_ignored
from evergraph.datasets.doors.named import NamedGraph, numbered_labels
from evergraph.graphs import Graph

if TYPE_CHECKING:
    import networkx

VECTOR = "x"  # the attribute that holds all features of a node
LABELS = ("label", "y")
TIME = "time"
WEIGHT = "weight"
WHERE = "NetworkX graph"

Attributes = Mapping[Hashable, Mapping[str, Any]]


def from_networkx(
    source: networkx.Graph,
    *,
    features: str | Sequence[str] | None = None,
    labels: str | None = None,
    undirected: bool = False,
) -> NamedGraph:
    """Return a graph of NetworkX with the names of its nodes, which may be anything hashable.

    Edges of a ``networkx.Graph`` run both ways, those of a ``DiGraph`` as they point. ``weight`` of
    edges and ``time`` of nodes are read where they are there; an edge without a weight weighs 1.

    Args:
        source: the graph.
        features: the attribute that holds a node's features as a list, or the names of attributes
            that hold one number each; ``x`` unless given, and none where there is no such.
        labels: the attribute with the class; ``label``, else ``y``, unless given. Nodes may lack
            it.
        undirected: whether edges that point one way run both.

    >>> import networkx as nx
    >>> source = nx.Graph()
    >>> source.add_node("a", x=[1.0, 0.0], label="art")
    >>> source.add_node("b", x=[0.0, 1.0])
    >>> source.add_edge("a", "b", weight=2.0)
    >>> named = from_networkx(source)
    >>> named.graph, named.ids, named.classes, named.graph.weights.tolist()
    (Graph(nodes=2, edges=2, features=2, classes=1), ['a', 'b'], ('art',), [2.0, 2.0])
    """
    nodes: Attributes = dict(source.nodes(data=True))
    label = _label_of(nodes) if labels is None else _present(labels, nodes)
    numbers, classes = numbered_labels([held.get(label) for held in nodes.values()])
    times = [held.get(TIME) for held in nodes.values()]
    ends, weights = _edges(source, list(nodes))
    graph = Graph.from_edges(
        ends,
        features=_features(nodes, features),
        labels=numbers,
        time=torch.tensor(times) if times and None not in times else None,
        undirected=undirected or not source.is_directed(),
        weights=weights,
    )
    _say_unread(source, nodes, features, label)
    return NamedGraph(graph, list(nodes), classes)


def _label_of(nodes: Attributes) -> str:
    held = {name for attributes in nodes.values() for name in attributes}
    return next((name for name in LABELS if name in held), LABELS[0])


def _present(name: str, nodes: Attributes) -> str:
    if not any(name in held for held in nodes.values()):
        raise DataError(f"labels must name an attribute of nodes, and no node has {name!r}")
    return name


def _features(nodes: Attributes, features: str | Sequence[str] | None) -> Tensor:
    """Return features side by side.  -> float32 [nodes, dims]"""
    if features is None and not any(VECTOR in held for held in nodes.values()):
        return torch.zeros(len(nodes), 0)
    one = VECTOR if features is None else features
    rows = [
        np.ravel(_value(node, held, one))
        if isinstance(one, str)
        else [_value(node, held, name) for name in one]
        for node, held in nodes.items()
    ]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise DataError(f"features must be as wide on every node, not {sorted(widths)} numbers")
    try:
        matrix = np.array(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"features of nodes must be numbers: {error}") from None
    return torch.from_numpy(matrix.reshape(len(nodes), -1))


def _value(node: Hashable, held: Mapping[str, Any], name: str) -> Any:
    if held.get(name) is None:
        raise DataError(f"node {node!r} has no attribute {name!r}: features need it on every node")
    return held[name]


def _edges(source: networkx.Graph, nodes: Sequence[Hashable]) -> tuple[Tensor, Tensor | None]:
    """Return edges as positions, and what they weigh if one says so.  -> int64 [2, edges]"""
    place = {node: number for number, node in enumerate(nodes)}
    ends, weights = [], []
    for start, end, weight in source.edges(data=WEIGHT):
        ends.append((place[start], place[end]))
        weights.append(weight)
    pairs = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).t()
    if all(weight is None for weight in weights):
        return pairs, None
    return pairs, torch.tensor([1.0 if w is None else float(w) for w in weights]).double()


def _say_unread(
    source: networkx.Graph,
    nodes: Attributes,
    features: str | Sequence[str] | None,
    label: str,
) -> None:
    """Say which attributes are not used."""
    used = [features or VECTOR] if isinstance(features, str | None) else [*features]
    read = {*used, label, TIME}
    unread = {name for held in nodes.values() for name in held} - read
    why = f"only {', '.join(used)}, {label} and {TIME} of nodes are used"
    say_ignored(WHERE, "attribute", sorted(map(str, unread)), why)
    others = {name for *_, held in source.edges(data=True) for name in held} - {WEIGHT}
    why = f"only {WEIGHT} of edges is used"
    say_ignored(WHERE, "attribute", sorted(map(str, others)), why)
