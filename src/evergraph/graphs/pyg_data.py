"""In and out of PyG's ``Data``: nodes of one type, edges of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.graphs.graph import Graph
from evergraph.graphs.hetero import from_hetero, is_hetero
from evergraph.graphs.targets import one_column, read_y
from evergraph.graphs.validation import given_weights, say_unread

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_data(data: Data, *, undirected: bool = False) -> Graph:
    """Return a ``Data`` object as a graph: see ``Graph.from_data``."""
    if is_hetero(data):
        return from_hetero(data, undirected=undirected)
    edge_index, x, y = data.edge_index, data.x, data.y
    for name, value in (("edge_index", edge_index), ("x", x), ("y", y)):
        if value is None:
            raise DataError(f"the Data object has no '{name}': x, edge_index and y are needed")
    time: Any = data.get("time", data.get("node_year"))
    attribute, weights = given_weights(data.to_dict())
    graph = Graph.from_edges(
        edge_index,
        features=x,
        **read_y(y),
        time=None if time is None else one_column("time", time),
        undirected=undirected,
        weights=weights,
    )
    say_unread("Data", data.keys(), weights=attribute)
    return graph


def to_data(graph: Graph) -> Data:
    """Return a graph as a ``Data`` object."""
    require("torch_geometric", extra="pyg", why="Graph.to_data()")
    from torch_geometric.data import Data

    data = Data(
        x=graph.features,
        edge_index=torch.stack([graph.indices.long(), graph.edge_rows()]),
        y=graph.labels if graph.targets is None else graph.targets.values,
    )
    if graph.time is not None:
        data.time = graph.time
    if graph.weights is not None:
        data.edge_weight = graph.weights
    return data
