"""In and out of PyG's ``HeteroData``: nodes of several types, edges of several relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.core.notices import say_ignored
from evergraph.graphs.graph import Graph
from evergraph.graphs.propagation import densify
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.validation import UNLABELLED

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

READ_OF_NODES = ("x", "y", "num_nodes")
READ_OF_EDGES = ("edge_index", "edge_weight")


def is_hetero(data: object) -> bool:
    """Whether an object is a ``HeteroData`` or of a class derived from it."""
    return any(kind.__name__ == "HeteroData" for kind in type(data).__mro__)


def from_hetero(data: HeteroData, *, target: str | None = None, undirected: bool = False) -> Graph:
    """Return all nodes of a ``HeteroData`` as one graph with types and relations.

    Nodes are numbered type after type, in the order of ``node_types``. Types whose features have
    one width share its columns; where widths differ, every type has columns of its own. A type
    without features has zeros: it is known by what its neighbours send. The nodes of one type are
    classified; the others have no labels.

    Args:
        data: the object.
        target: the type whose ``y`` are the classes; the one that has a ``y`` unless given.
        undirected: whether features flow along every edge both ways.

    >>> from torch_geometric.data import HeteroData
    >>> data = HeteroData()
    >>> data["paper"].x, data["paper"].y = torch.eye(2), torch.tensor([0, 1])
    >>> data["author"].num_nodes = 1
    >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 0], [0, 1]])
    >>> graph = from_hetero(data, undirected=True)
    >>> graph, graph.types.names, graph.relations.names, graph.labels.tolist()
    (Graph(nodes=3, edges=4, features=2, classes=2), ('paper', 'author'), ('writes',), [0, 1, -1])
    """
    types = list(data.node_types)
    sizes = [_size(data, name) for name in types]
    starts = dict(zip(types, _starts(sizes), strict=True))
    target = _target(data, types) if target is None else _checked(target, types)
    ends, numbers, names, weights = _edges(data, starts)
    labels = torch.full((sum(sizes),), UNLABELLED)
    classes = data[target].y
    labels[starts[target] : starts[target] + len(classes)] = classes.reshape(-1)
    graph = Graph.from_edges(
        ends,
        features=_features(data, types, sizes),
        labels=labels,
        undirected=undirected,
        weights=weights,
    )
    numbered = torch.arange(len(types), dtype=torch.int16).repeat_interleave(torch.tensor(sizes))
    _say_unread(data)
    relations = Relations.of(ends, numbers, names, nodes=len(labels), weights=weights)
    return graph.with_relations(relations).with_types(NodeTypes(tuple(types), numbered))


def to_hetero(graph: Graph) -> HeteroData:
    """Return a graph with types and relations as ``HeteroData``; the way back of ``from_hetero``.

    Without types there is one, ``node``; without relations one, ``edge``.
    """
    require("torch_geometric", extra="pyg", why="to_hetero()")
    from torch_geometric.data import HeteroData

    data: Any = HeteroData()
    plain = NodeTypes(("node",), torch.zeros(graph.num_nodes, dtype=torch.int16))
    types = plain if graph.types is None else graph.types
    place = torch.empty(graph.num_nodes, dtype=torch.int64)
    for number, name in enumerate(types.names):
        nodes = (types.numbers == number).nonzero().flatten()
        place[nodes] = torch.arange(len(nodes))
        data[name].x = densify(graph.features)[nodes]
        if bool((graph.labels[nodes] != UNLABELLED).any()):
            data[name].y = graph.labels[nodes]
    relations = graph.relations
    if relations is None:
        ends = torch.stack([graph.indices.long(), graph.edge_rows()])
        zeros = torch.zeros(graph.num_edges, dtype=torch.int64)
        relations = Relations.of(ends, zeros, ("edge",), nodes=graph.num_nodes)
    _put_edges(data, relations, types, place)
    return data


def _put_edges(data: Any, relations: Relations, types: NodeTypes, place: Tensor) -> None:
    ends, numbers = relations.edges()
    weights = relations.edge_weights()
    kinds = torch.stack([types.numbers[ends[0]].long(), numbers, types.numbers[ends[1]].long()])
    for source, relation, target in kinds.unique(dim=1).t().tolist():
        found = (kinds == torch.tensor([[source], [relation], [target]])).all(0)
        name = types.names[source], relations.names[relation], types.names[target]
        data[name].edge_index = place[ends[:, found]]
        if weights is not None:
            data[name].edge_weight = weights[found]


def _size(data: Any, name: str) -> int:
    count = data[name].num_nodes
    if count is None:
        raise DataError(f"node type {name!r} does not say how many nodes it has: set num_nodes")
    return int(count)


def _starts(sizes: Sequence[int]) -> list[int]:
    starts = [0]
    for size in sizes[:-1]:
        starts.append(starts[-1] + size)
    return starts


def _target(data: Any, types: Sequence[str]) -> str:
    labelled = [name for name in types if "y" in data[name]]
    if len(labelled) != 1:
        found = ", ".join(map(repr, labelled)) or "none"
        raise DataError(f"one node type must have classes 'y', not {found}: name it with target=")
    return labelled[0]


def _checked(target: str, types: Sequence[str]) -> str:
    if target not in types:
        raise DataError(f"target must be a node type, one of {', '.join(types)}, not {target!r}")
    return target


def _features(data: Any, types: Sequence[str], sizes: Sequence[int]) -> Tensor:
    """Return the features of all types.  -> float32 [nodes, dims]"""
    given = [densify(data[name].x).float() if "x" in data[name] else None for name in types]
    widths = [0 if x is None else x.shape[1] for x in given]
    shared = len({width for width in widths if width}) <= 1
    total = max(widths, default=0) if shared else sum(widths)
    rows, before = [], 0
    for x, size, width in zip(given, sizes, widths, strict=True):
        block = torch.zeros(size, total)
        first = 0 if shared else before
        if x is not None:
            block[:, first : first + width] = x
        rows.append(block)
        before += width
    return torch.cat(rows)


def _edges(data: Any, starts: dict[str, int]) -> tuple[Tensor, Tensor, list[str], Tensor | None]:
    """Return ends, relations, their names, and weights where any edge has one."""
    kinds = list(data.edge_types)
    names = _names(kinds)
    ends, numbers, weights = [torch.empty(2, 0).long()], [torch.empty(0).long()], []
    for number, kind in enumerate(kinds):
        pairs = data[kind].edge_index
        ends.append(pairs + torch.tensor([[starts[kind[0]]], [starts[kind[2]]]]))
        numbers.append(torch.full((pairs.shape[1],), number))
        given = data[kind].edge_weight if "edge_weight" in data[kind] else None
        weights.append(torch.ones(pairs.shape[1]) if given is None else given.reshape(-1).float())
    weighed = any("edge_weight" in data[kind] for kind in kinds)
    return (
        torch.cat(ends, dim=1),
        torch.cat(numbers),
        names,
        (torch.cat(weights) if weighed else None),
    )


def _names(kinds: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the name of each relation; with its ends where several have the same."""
    often = Counter(relation for _, relation, _ in kinds)
    return [kind[1] if often[kind[1]] == 1 else "__".join(kind) for kind in kinds]


def _say_unread(data: Any) -> None:
    for name in data.node_types:
        unread = [key for key in data[name].to_dict() if key not in READ_OF_NODES]
        say_ignored(f"node type {name!r}", "attribute", unread, "only x and y are used")
    for kind in data.edge_types:
        unread = [key for key in data[kind].to_dict() if key not in READ_OF_EDGES]
        said = "only edge_index and edge_weight are used"
        say_ignored(f"edge type {'__'.join(kind)!r}", "attribute", unread, said)
