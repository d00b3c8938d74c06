"""Conversion between PyG's ``Data`` and ``HeteroData`` and the arrays of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError, say_ignored
from evergraph.core.packages import require
from evergraph.graphs.csr import densify
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.targets import MASKS, Masks, names_of_masks, one_column, read_masks, read_y
from evergraph.graphs.validation import (
    TIME,
    UNLABELLED,
    combined,
    given_weights,
    say_repeated,
    say_unread,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

READ_OF_NODES = ("x", "y", "num_nodes")
READ_OF_EDGES = ("edge_index", "edge_weight")


def is_hetero(data: object) -> bool:
    """Return whether an object is a ``HeteroData`` or of a derived class."""
    return any(kind.__name__ == "HeteroData" for kind in type(data).__mro__)


def read_pyg(
    data: Data | HeteroData, *, target: str | None, repeated: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an object of PyG as arguments of ``Graph.from_edges``, with relations and types."""
    if not is_hetero(data):
        return read_data(data) | {"repeated": repeated, "where": "Data"}, {}
    arrays, relations, types = read_hetero(data, target=target, repeated=repeated)
    return arrays, {"relations": relations, "types": types}


def read_data(data: Data) -> dict[str, Any]:
    """Return a ``Data`` object as keyword arguments of ``Graph.from_edges``."""
    for name in ("edge_index", "x", "y"):
        if getattr(data, name) is None:
            raise DataError(f"the Data object has no '{name}': x, edge_index and y are needed")
    return {"features": data.x, **read_attributes(data.to_dict(), "Data", data.keys())}


def read_attributes(
    given: Mapping[str, Any], where: object, names: Iterable[str]
) -> dict[str, Any]:
    """Return the attributes of a ``Data``, but for features, as arguments of ``from_edges``.

    given: tensors by name, edge_index and y among them; where, names: what it is, and all that it
    holds: what is not used is logged.
    """
    attribute, weights = given_weights(given)
    say_unread(where, names, weights=attribute, also=names_of_masks(given))
    time = next((given[name] for name in TIME if given.get(name) is not None), None)
    return {
        "edge_index": given["edge_index"],
        **read_y(given["y"]),
        "time": None if time is None else one_column("time", time),
        "weights": weights,
        "masks": read_masks(given, len(given["y"])),
    }


def write_data(
    features: Tensor,
    edge_index: Tensor,
    y: Tensor,
    *,
    time: Tensor | None,
    weights: Tensor | None,
    masks: Masks | None = None,
) -> Data:
    """Return arrays of a graph as ``Data``."""
    require("torch_geometric", extra="pyg", why="Graph.to_data()")
    from torch_geometric.data import Data

    data = Data(x=features, edge_index=edge_index, y=y)
    if time is not None:
        data.time = time
    if weights is not None:
        data.edge_weight = weights
    if masks is not None:
        for name, mask in zip(MASKS, masks.parts, strict=True):
            data[name] = mask if masks.splits > 1 else mask[:, 0]
    return data


def read_hetero(
    data: HeteroData, *, target: str | None = None, repeated: str | None = None
) -> tuple[dict[str, Any], Relations, NodeTypes]:
    """Return a ``HeteroData`` as arguments of ``Graph.from_edges``, with relations and types.

    Nodes are numbered type by type, in the order of ``node_types``. Types whose features all have
    the same width share columns; otherwise every type has its own columns. A type without features
    gets zeros and is represented by its neighbours' features. Nodes of one type, ``target``, are
    classified, by default the one with a ``y``; the others have no labels. repeated: as in
    ``Graph.from_edges``.
    """
    types = list(data.node_types)
    for name in types:
        if data[name].num_nodes is None:
            raise DataError(f"node type {name!r} has no known number of nodes: set num_nodes")
    sizes = [int(data[name].num_nodes) for name in types]
    starts = dict(zip(types, accumulate(sizes, initial=0), strict=False))
    labelled = [name for name in types if "y" in data[name]]
    if target is None and len(labelled) != 1:
        listed = ", ".join(map(repr, labelled)) or "none"
        raise DataError(f"one node type must have classes 'y', not {listed}: name it with target=")
    target = labelled[0] if target is None else target
    if target not in types:
        raise DataError(f"target must be a node type, one of {', '.join(types)}, not {target!r}")
    ends, numbers, names, weights = _edges(data, starts)
    if repeated is not None:
        edges = combined(ends, weights, numbers, repeated=repeated)
        say_repeated("HeteroData", edges.repeats, ends.shape[1], repeated)
        ends, numbers = ends[:, edges.rows], numbers[edges.rows]
        weights = edges.checked_weights()
    labels = torch.full((sum(sizes),), UNLABELLED)
    classes = data[target].y
    labels[starts[target] : starts[target] + len(classes)] = classes.reshape(-1)
    type_numbers = torch.arange(len(types), dtype=torch.int16).repeat_interleave(
        torch.tensor(sizes)
    )
    for name in types:
        read = (*READ_OF_NODES, *(names_of_masks(data[name].to_dict()) if name == target else ()))
        unread = [key for key in data[name].to_dict() if key not in read]
        say_ignored(f"node type {name!r}", "attribute", unread, "only x and y are used")
    for kind in data.edge_types:
        unread = [key for key in data[kind].to_dict() if key not in READ_OF_EDGES]
        reason = "only edge_index and edge_weight are used"
        say_ignored(f"edge type {'__'.join(kind)!r}", "attribute", unread, reason)
    arrays = {"edge_index": ends, "features": _features(data, types, sizes), "labels": labels}
    masks = read_masks(data[target].to_dict(), sizes[types.index(target)])
    if masks is not None:  # other types of nodes are in none
        nodes_before = starts[target]
        padding = (0, 0, nodes_before, len(labels) - nodes_before - len(masks))
        masks = masks.each(lambda mask: torch.nn.functional.pad(mask, padding))
    return (
        arrays | {"weights": weights, "masks": masks},
        Relations.of(ends, numbers, names, nodes=len(labels), weights=weights),
        NodeTypes(tuple(types), type_numbers),
    )


def write_hetero(
    features: Tensor, labels: Tensor, types: NodeTypes | None, relations: Relations
) -> HeteroData:
    """Return arrays of a graph as ``HeteroData``; without types there is one, ``node``."""
    require("torch_geometric", extra="pyg", why="Graph.to_hetero()")
    from torch_geometric.data import HeteroData

    data: Any = HeteroData()
    if types is None:
        types = NodeTypes(("node",), torch.zeros(len(labels), dtype=torch.int16))
    position = torch.empty(len(labels), dtype=torch.int64)
    for number, name in enumerate(types.names):
        nodes = (types.numbers == number).nonzero().flatten()
        position[nodes] = torch.arange(len(nodes))
        data[name].x = densify(features)[nodes]
        if bool((labels[nodes] != UNLABELLED).any()):
            data[name].y = labels[nodes]
    ends, numbers = relations.edges()
    weights = relations.edge_weights()
    kinds = torch.stack([types.numbers[ends[0]].long(), numbers, types.numbers[ends[1]].long()])
    for source, relation, target in kinds.unique(dim=1).t().tolist():
        selected = (kinds == torch.tensor([[source], [relation], [target]])).all(0)
        kind = types.names[source], relations.names[relation], types.names[target]
        data[kind].edge_index = position[ends[:, selected]]
        if weights is not None:
            data[kind].edge_weight = weights[selected]
    return data


def _features(data: Any, types: Sequence[str], sizes: Sequence[int]) -> Tensor:
    """Return the features of all types.  -> float32 [nodes, dims]"""
    matrices = [densify(data[name].x).float() if "x" in data[name] else None for name in types]
    widths = [0 if x is None else x.shape[1] for x in matrices]
    shared = len({width for width in widths if width}) <= 1
    total = max(widths, default=0) if shared else sum(widths)
    rows = [torch.zeros(size, total) for size in sizes]
    first = 0
    for x, block, width in zip(matrices, rows, widths, strict=True):
        if x is not None:
            block[:, first : first + width] = x
        first += 0 if shared else width
    return torch.cat(rows)


def _edges(data: Any, starts: dict[str, int]) -> tuple[Tensor, Tensor, list[str], Tensor | None]:
    """Return ends, relations, their names, and weights if any edge has one."""
    kinds = list(data.edge_types)
    # A relation is named with the types of its ends if its own name is not unique.
    counts = Counter(relation for _, relation, _ in kinds)
    names = [kind[1] if counts[kind[1]] == 1 else "__".join(kind) for kind in kinds]
    ends = [torch.empty(2, 0).long()]
    numbers = [torch.empty(0).long()]
    weights = []
    for number, kind in enumerate(kinds):
        pairs = data[kind].edge_index
        ends.append(pairs + torch.tensor([[starts[kind[0]]], [starts[kind[2]]]]))
        numbers.append(torch.full((pairs.shape[1],), number))
        if "edge_weight" in data[kind]:
            weights.append(data[kind].edge_weight.reshape(-1).float())
        else:
            weights.append(torch.ones(pairs.shape[1]))
    weighed = any("edge_weight" in data[kind] for kind in kinds)
    all_weights = torch.cat(weights) if weighed else None
    return torch.cat(ends, dim=1), torch.cat(numbers), names, all_weights
