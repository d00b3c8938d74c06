"""Conversion of arguments and results from and to NumPy, pandas, Polars, Arrow, torch and PyG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, InvalidRowsError, say, say_ignored
from evergraph.core.targets import target_of
from evergraph.datasets.adapters import NamedGraph
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.validation import (
    check_edges,
    checked_weights,
    combined,
    given_weights,
    say_repeated,
    say_unread,
)
from evergraph.online.checking import LARGEST_FEATURE
from evergraph.online.codecs.node_rows import check_usable
from evergraph.online.delta import Delta, EdgeColumns, Label, NodeId, NodeTarget
from evergraph.online.identifiers import check_ids
from evergraph.online.rows import as_targets, graph_targets, plain_values, targets_of_y
from evergraph.online.sparse_rows import csr_features, is_sparse_tensor
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.columns import RELATION, WEIGHT
from evergraph.tables.edges import say_edges_unread
from evergraph.tables.frames import arrow_table, column_names, is_a, is_sparse, is_table
from evergraph.tables.names import of_nodes, renamed
from evergraph.tables.nodes import is_index, read_features, say_by_position, say_index
from evergraph.tables.scheme import NodeFeatures, Scheme
from evergraph.tables.sources import naming


def as_ids(values: Any, name: str = "nodes") -> list[NodeId]:
    """Return ids as text and integers, from a list, an array, a Series, an Index or a tensor."""
    ids = plain_values(values, name)
    if ids and name == "nodes" and isinstance(ids[0], list | tuple):
        raise DataError(f"nodes must be ids, not {ids[0]!r}: give edges alone as edges=[...]")
    if ids and all(type(value) is float and value.is_integer() for value in ids):
        say(name, f"ids are whole numbers with a decimal point: {ids[0]!r} is read as {ids[0]:.0f}")
        ids = [int(value) for value in ids]
    check_ids(f"id in {name}", ids)
    return ids


def asked_ids(values: Any) -> list[NodeId]:
    """Return the ids of nodes to be asked about."""
    if values is None:
        raise ConfigurationError("give ids of nodes, or rows of new ones, to ask about")
    if hasattr(values, "ndim") and values.ndim == 1 and getattr(values.dtype, "kind", "") == "f":
        fractions = [value for value in values.tolist() if not float(value).is_integer()]
        if fractions:
            raise InvalidRowsError(
                f"ids of nodes must be text or whole numbers, not {fractions[0]!r}. Reshape your data "
                "to [1, features] if this is a row of features"
            )
    return as_ids(values, "ids")


def check_labelled(ids: Sequence[NodeId], targets: Sequence[NodeTarget | None]) -> None:
    """Raise unless every node has a target."""
    if None in targets:
        raise DataError(f"label of node {ids[targets.index(None)]!r} is missing")


def as_features(values: Any, count: int) -> Tensor:
    """Return features as a matrix, from an array, a DataFrame, a tensor or lists.

    -> float32 [count, dims], CSR if they are sparse
    """
    if values is None:
        return torch.zeros(count, 0)
    if is_sparse(values) or is_sparse_tensor(values):
        tensor = csr_features(values)
    elif isinstance(values, Tensor):
        tensor = values.detach().cpu().clone()
    else:
        try:
            array = np.asarray(values)
            if array.dtype.kind == "c":
                raise DataError(f"features hold {array.dtype}: expected real numbers")
            if array.dtype.kind not in "biuf":
                array = array.astype(np.float64)  # mixed columns, or numbers as objects
        except (TypeError, ValueError) as error:
            raise DataError(f"features must be a matrix of numbers: {error}") from None
        wide = np.float32 if array.dtype.itemsize <= 4 else np.float64
        tensor = torch.from_numpy(np.array(array, wide, order="C"))  # a copy of the caller's
    if tensor.is_complex() or tensor.dim() != 2 or len(tensor) != count:
        raise DataError(
            f"features have shape {tuple(tensor.shape)} of {tensor.dtype}: expected real numbers "
            f"[{count}, dims], one row per node"
        )
    return tensor if is_sparse_tensor(tensor) else tensor.to(torch.float32).contiguous()


def as_edges(values: Any) -> Sequence[tuple[NodeId, NodeId]]:
    """Return edges as pairs of ids, kept as columns where possible.

    values: pairs, an array [edges, 2], a table of two columns (or with ``source`` and ``target``),
    or a tensor [2, edges] as in PyG.

    >>> as_edges([("a", 7)]), list(as_edges(torch.tensor([[0, 1], [2, 3]])))
    ([('a', 7)], [(0, 2), (1, 3)])
    """
    if values is None:
        return []
    sides: Any
    if isinstance(values, Tensor):
        if values.dim() != 2 or values.shape[0] != 2:
            raise DataError(f"edges have shape {tuple(values.shape)}: expected [2, edges]")
        sides = values[0], values[1]
    elif is_table(values):
        columns = [name for name in column_names(values) if name not in (WEIGHT, RELATION)]
        named = {"source", "target"} <= set(columns)
        if not named and len(columns) != 2:
            found = ", ".join(map(str, columns))
            raise DataError(f"edges have columns {found}: expected source and target")
        source, target = ("source", "target") if named else columns
        if named:
            say_edges_unread("edges", columns)
        sides = values[source], values[target]
    elif isinstance(values, np.ndarray):
        if values.ndim != 2 or values.shape[1] != 2:
            raise DataError(f"edges have shape {values.shape}: expected [edges, 2], a row per edge")
        sides = values[:, 0], values[:, 1]
    else:
        pairs = []
        for edge in plain_values(values, "edges"):
            ends = as_ids(edge, "edges") if not isinstance(edge, str) else []
            if len(ends) != 2:
                raise DataError(f"an edge must join two nodes, not {edge!r}")
            pairs.append((ends[0], ends[1]))
        return pairs
    return EdgeColumns(*(as_ids(side, "edges") for side in sides))


def weighted_edges(edges: Any, weights: Any) -> tuple[Any, Any]:
    """Return edges as pairs and their weights, which triples (u, v, w) hold.

    >>> weighted_edges([("a", "b", 0.5), ("b", "c", 2)], None)
    ([('a', 'b'), ('b', 'c')], [0.5, 2])
    """
    ends: Any
    triples = isinstance(edges, np.ndarray) and edges.ndim == 2 and edges.shape[1] == 3
    if triples and (edges.dtype.kind == "f" or len(edges) != 2):  # [2, edges] is meant otherwise
        ends, edge_weights = edges[:, :2], edges[:, 2].astype(np.float64).tolist()
        if ends.dtype.kind == "f" and (ends == np.floor(ends)).all():
            ends = ends.astype(np.int64)
    elif (
        isinstance(edges, list | tuple)
        and edges
        and all(isinstance(edge, list | tuple) and len(edge) == 3 for edge in edges)
    ):
        ends, edge_weights = [(edge[0], edge[1]) for edge in edges], [edge[2] for edge in edges]
    else:
        return edges, weights
    if weights is not None:
        raise ConfigurationError("edge_weights are given, but edges hold weights as well")
    return ends, edge_weights


def beside_edges(values: Any, edges: Any, name: str) -> list[Any]:
    """Return the weights or relations of edges, as given or from a column of a table of edges."""
    argument = {WEIGHT: "edge_weights", RELATION: "relations"}[name]
    if is_table(edges) and name in [each for each in column_names(edges) if isinstance(each, str)]:
        if values is not None:
            raise DataError(f"{argument} are given, but edges have a column {name!r} as well")
        values = edges[name]
    return [] if values is None else plain_values(values, argument)


def as_types(values: Any) -> list[str | None]:
    """Return the types of nodes, None for missing ones (None or NaN)."""
    if values is None:
        return []
    return [
        None if value is None or value != value else value
        for value in plain_values(values, "types")
    ]


def table_of_nodes(table: Any, names: Mapping[str, object], kind: str) -> pa.Table:
    """Return a table of nodes of pandas, Polars or Arrow as Arrow, under our names of columns.

    A named index of pandas is a column. names: the user's names by ours; kind: of the targets.
    """
    if is_a(table, "pandas") and table.index.name in ("id", names.get("id", "id")):
        table = table.reset_index()
    return renamed(arrow_table(table), of_nodes(names, label=target_of(kind).column))


def delta_of_named(named: NamedGraph, ids: Any, key: str | None, kind: str = "class") -> Delta:
    """Return a delta that adds a graph with names; ids: other names for its nodes.

    Two nodes that are joined by several relations have an edge for each. kind: of the model's
    targets.
    """
    graph = named.graph
    own = range(graph.num_nodes) if named.ids is None else named.ids
    nodes = _renamed(own, ids, "nodes")
    targets: list[NodeTarget | None]
    if graph.targets is not None:
        targets = graph_targets(kind, graph.targets)
    else:
        targets = as_targets("class", graph.labels, graph.num_nodes)
        if not target_of(kind).is_class and targets.count(None) < len(targets):
            raise DataError(f"nodes have classes, but the model was made with targets={kind!r}")
        if named.classes is not None:
            classes = graph.labels.tolist()
            targets = [None if n == UNLABELLED else named.classes[n] for n in classes]
    names: list[str] = []
    sides: Any
    if graph.relations is None:
        sides, weights = (graph.indices, graph.edge_rows()), graph.weights
    else:
        sides, numbers = graph.relations.edges()
        weights = graph.relations.edge_weights()
        names = [graph.relations.names[number] for number in numbers.tolist()]
    return Delta(
        nodes=nodes,
        features=graph.features,
        labels=targets,
        edges=_between(nodes, sides),
        weights=[] if weights is None else weights.tolist(),
        relations=names,
        types=[] if graph.types is None else graph.types.of(torch.arange(graph.num_nodes)),
        key=key,
    )


def _renamed(own: Sequence[Any], ids: Any, what: str) -> list[NodeId]:
    nodes = as_ids(own if ids is None else ids, "ids")
    if len(nodes) != len(own):
        raise DataError(f"ids must be as many as {what}, not {len(nodes)} for {len(own)}")
    return nodes


def _between(nodes: list[NodeId], sides: Any) -> EdgeColumns:
    """Return edges between nodes by index.  sides: int64 [2, edges]"""
    return EdgeColumns(*([nodes[place] for place in side.tolist()] for side in sides))


def delta_of_data(
    data: Any, ids: Any, key: str | None, kind: str = "class", repeated: str = "last"
) -> Delta:
    """Return a delta that adds a PyG ``Data``, with nodes named ``ids`` or 0, 1, 2, ..."""
    features = getattr(data, "x", None)
    if features is None:
        count = int(data.num_nodes)
    else:  # SciPy's matrices have no length
        count = features.shape[0] if is_sparse(features) else len(features)
    nodes = _renamed(range(count), ids, "nodes" if features is None else "rows of x")
    rows = torch.empty(2, 0, dtype=torch.int64) if data.edge_index is None else data.edge_index
    check_edges(rows, len(nodes))
    attribute, weights = given_weights(data.to_dict())
    if weights is not None:
        weights = checked_weights("weight", weights, rows.shape[1])
    edges = combined(rows, weights, repeated=repeated)
    say_repeated("Data", edges.repeats, rows.shape[1], repeated)
    rows, weights = rows[:, edges.rows], edges.checked_weights()
    delta = Delta(
        nodes=nodes,
        features=as_features(features, len(nodes)),
        labels=targets_of_y(kind, data.y, len(nodes)),
        edges=_between(nodes, rows),
        weights=[] if weights is None else weights.tolist(),
        key=key,
    )
    say_unread("Data", data.keys(), timed=False, weights=attribute)
    return delta


def delta_of_hetero(
    data: Any, ids: Any, key: str | None, kind: str = "class", repeated: str = "last"
) -> Delta:
    """Return a delta that adds a PyG ``HeteroData``: nodes are named ``paper/0``, or ``ids``."""
    graph = Graph.from_data(data, repeated=repeated)
    assert graph.types is not None
    kinds = graph.types.of(torch.arange(graph.num_nodes))
    indices = [index for name in data.node_types for index in range(kinds.count(name))]
    own = [f"{name}/{index}" for name, index in zip(kinds, indices, strict=True)]
    return delta_of_named(NamedGraph(graph, own), ids, key, kind)


def targets_like(kind: str, ids: Any, found: Sequence[Any]) -> Any:
    """Return predictions in the type of ``ids``: a Series for pandas, a tensor for a tensor.

    A tensor cannot hold labels or names of classes.
    """
    values = target_of(kind).array(found)
    numeric = isinstance(values, np.ndarray) and values.dtype in (np.int64, np.float32)
    if isinstance(ids, Tensor) and numeric:
        return torch.from_numpy(values)
    if not is_a(ids, "pandas"):
        return values
    import pandas as pd

    return pd.Series(values, index=_index(ids), dtype=None if len(values) else object)


def matrix_like(ids: Any, matrix: Tensor, columns: Sequence[Label] | None = None) -> Any:
    """Return rows of numbers: a DataFrame for pandas, a tensor for a tensor, else an array."""
    if is_a(ids, "pandas"):
        import pandas as pd

        return pd.DataFrame(matrix.numpy(), index=_index(ids), columns=columns)
    return matrix if isinstance(ids, Tensor) else matrix.numpy()


def _index(ids: Any) -> Any:
    """Return the index of a result: that of a Series or a DataFrame, or the ids of an Index."""
    return getattr(ids, "index", ids) if type(ids).__name__ in ("Series", "DataFrame") else ids


WHERE = "features"  # prefix of messages


def is_numbered(frame: Any) -> bool:
    """Whether a frame is a plain array of numbers, with pandas' default columns 0, 1, 2, ..."""
    if not is_a(frame, "pandas") or [*frame.columns] != [*range(len(frame.columns))]:
        return False
    if any(getattr(kind, "kind", "") in ("m", "M") for kind in frame.dtypes):
        return False  # NumPy would turn dates into meaningless numbers
    try:
        return not bool(as_features(frame, len(frame)).isnan().any())
    except DataError:
        return False


def read_frame(
    frame: Any, count: int, columns: Columns | Scheme | None, labels: Sequence[Any] = ()
) -> NodeFeatures:
    """Return the features of a table's rows.

    columns: the scheme of the first table, choices to fit one on this table, or None for numbers;
    labels: of the rows, to warn of a column that gives them away.
    """
    if columns is None and is_a(frame, "pandas"):  # needs no Arrow
        if not is_numbered(frame):
            say_by_position(WHERE, [str(name) for name in frame.columns])
        return NodeFeatures(as_features(frame, count))
    with naming(WHERE):
        table = arrow_table(frame)
        if table.num_rows != count:
            raise DataError(f"has {table.num_rows} rows: expected {count}, one per node")
        say_index(WHERE, table.column_names)
        given = [name for name in table.column_names if name in ("id", "label")]
        say_ignored(WHERE, "column", given, "ids and labels are given beside the features")
        names = [name for name in table.column_names if not (name in given or is_index(name))]
        if columns is None:
            say_by_position(WHERE, names)
        known = pa.array([None if v is None else str(v) for v in labels]) if labels else None
        read = read_features(table, names, columns, where=WHERE, labels=known, most=LARGEST_FEATURE)
        read.say_new(WHERE)
        check_usable(read, columns, WHERE)
    return read
