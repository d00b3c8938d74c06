"""Conversion of arguments and results from and to NumPy, pandas, Polars, Arrow, torch and PyG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.label_space import Kind
from evergraph.core.notices import say_ignored
from evergraph.datasets.doors import NamedGraph
from evergraph.graphs import Graph
from evergraph.graphs.csr import densify
from evergraph.graphs.validation import (
    check_edges,
    checked_weights,
    given_weights,
    say_unread,
)
from evergraph.online.delta import Delta, EdgeColumns, Label, NodeId, NodeTarget
from evergraph.online.identifiers import check_ids
from evergraph.online.labels import as_labels, graph_targets, plain_values, targets_of_y
from evergraph.tables.columns import RELATION, TYPE, WEIGHT
from evergraph.tables.frames import column_names, is_a, is_table
from evergraph.tables.labels import (
    LABELS,
    is_missing,
    label_parts,
    one_label,
    say_missing,
    target_names,
)


def as_ids(values: Any, name: str = "nodes") -> list[NodeId]:
    """Return ids as text and integers, from a list, an array, a Series, an Index or a tensor.

    >>> as_ids(np.array([3, 5])), as_ids(["a", 1])
    ([3, 5], ['a', 1])
    """
    ids = plain_values(values, name)
    check_ids(f"id in {name}", ids)
    return ids


def as_features(values: Any, count: int) -> Tensor:
    """Return features as a matrix, from an array, a DataFrame, a tensor or lists; sparse or not.

    -> float32 [count, dims]
    """
    if values is None:
        if count:
            raise DataError(f"features must be given for {count} new nodes, one row per node")
        return torch.zeros(0, 0)
    if hasattr(values, "toarray"):  # scipy's sparse matrices
        values = values.toarray()
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        tensor = tensor.clone() if tensor.layout == torch.strided else tensor.to_dense()
    else:
        tensor = torch.from_numpy(_numbers(values))
    if tensor.is_complex() or tensor.dim() != 2 or len(tensor) != count:
        raise DataError(
            f"features have shape {tuple(tensor.shape)} of {tensor.dtype}: expected real numbers "
            f"[{count}, dims], one row per node"
        )
    return tensor.to(torch.float32).contiguous()


def _numbers(values: Any) -> np.ndarray[Any, Any]:
    """Return numbers as an array, always a copy of the caller's."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise DataError(f"features hold {array.dtype}: expected real numbers")
        if array.dtype.kind not in "biuf":
            array = array.astype(np.float64)  # mixed columns, or numbers as objects
    except (TypeError, ValueError) as error:
        raise DataError(f"features must be a matrix of numbers: {error}") from None
    return np.array(array, np.float32 if array.dtype.itemsize <= 4 else np.float64, order="C")


def as_edges(values: Any) -> Sequence[tuple[NodeId, NodeId]]:
    """Return edges as pairs of ids, kept as columns where possible.

    values: pairs, an array [edges, 2], a table of two columns (or with ``source`` and ``target``),
    or a tensor [2, edges] as in PyG.

    >>> as_edges([("a", 7)]), list(as_edges(torch.tensor([[0, 1], [2, 3]])))
    ([('a', 7)], [(0, 2), (1, 3)])
    """
    if values is None:
        return []
    if isinstance(values, Tensor):
        if values.dim() != 2 or values.shape[0] != 2:
            raise DataError(f"edges have shape {tuple(values.shape)}: expected [2, edges]")
        return EdgeColumns(as_ids(values[0], "edges"), as_ids(values[1], "edges"))
    if is_table(values):
        columns = [name for name in column_names(values) if name not in (WEIGHT, RELATION)]
        named = {"source", "target"} <= set(columns)
        if not named and len(columns) != 2:
            found = ", ".join(map(str, columns))
            raise DataError(f"edges have columns {found}: expected source and target")
        source, target = ("source", "target") if named else columns
        others = [name for name in columns if name not in (source, target)]
        used = "only source, target, weight and relation of edges are used"
        say_ignored("edges", "column", others, used)
        return EdgeColumns(as_ids(values[source], "edges"), as_ids(values[target], "edges"))
    if isinstance(values, np.ndarray) and (values.ndim != 2 or values.shape[1] != 2):
        raise DataError(f"edges have shape {values.shape}: expected [edges, 2], a row per edge")
    if isinstance(values, np.ndarray):
        return EdgeColumns(as_ids(values[:, 0], "edges"), as_ids(values[:, 1], "edges"))
    return [_pair(edge) for edge in plain_values(values, "edges")]


def as_weights(values: Any, edges: Any) -> list[float]:
    """Return the weights of edges, as given or from the column ``weight`` of a table of edges.

    >>> as_weights(None, [("a", "b")]), as_weights(torch.tensor([0.5]), [("a", "b")])
    ([], [0.5])
    """
    if is_table(edges) and WEIGHT in _texts(edges):
        if values is not None:
            raise DataError("edge_weights are given, but edges have a column 'weight' as well")
        values = edges["weight"]
    return [] if values is None else plain_values(values, "edge_weights")


def as_relations(values: Any, edges: Any) -> list[str]:
    """Return the relations of edges, as given or from the column ``relation`` of a table of edges.

    >>> as_relations(["cites"], [("a", "b")]), as_relations(None, [("a", "b")])
    (['cites'], [])
    """
    if is_table(edges) and RELATION in _texts(edges):
        if values is not None:
            raise DataError("relations are given, but edges have a column 'relation' as well")
        values = edges["relation"]
    return [] if values is None else plain_values(values, "relations")


def as_types(values: Any) -> list[str | None]:
    """Return the types of nodes, None for missing ones (None or NaN)."""
    if values is None:
        return []
    return [
        None if value is None or value != value else value
        for value in plain_values(values, "types")
    ]


def _texts(table: Any) -> list[str]:
    return [name for name in column_names(table) if isinstance(name, str)]


def _pair(edge: Any) -> tuple[NodeId, NodeId]:
    ends = as_ids(edge, "edges") if not isinstance(edge, str) else []
    if len(ends) != 2:
        raise DataError(f"an edge must join two nodes, not {edge!r}")
    return ends[0], ends[1]


@dataclass(frozen=True)
class NodeColumns:
    """A table of nodes, split by role; missing columns are None.

    Attributes:
        ids: column ``id``.
        features: table of all other columns, of any kind.
        targets: column ``label``, ``labels`` or ``target``, see ``as_targets``.
        types: column ``type``.
    """

    ids: Any
    features: Any
    targets: Any = None
    types: Any = None


def columns_of_nodes(table: Any, kind: Kind = "class") -> NodeColumns:
    """Return the columns of a table of nodes by role, named as in a folder of tables.

    Without a column ``id`` its index is used. kind: of the model's targets.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"id": ["a"], "label": ["x"], "size": [2.5]})
    >>> found = columns_of_nodes(table)
    >>> [part.values.tolist() for part in (found.ids, found.features)], found.targets
    ([['a'], [[2.5]]], ['x'])
    """
    if is_a(table, "pandas") and "id" not in table.columns and table.index.name == "id":
        table = table.reset_index()
    table = _stripped(table)
    names = column_names(table)
    if "id" not in names:
        raise DataError(f"nodes have no column 'id': they have {', '.join(map(str, names))}")
    timed = [name for name in names if name == "time"]
    say_ignored("nodes", "column", timed, "a learner takes nodes in the order of their rows")
    targets = _target_columns(names, kind)
    types = [TYPE] if TYPE in names and _is_texts(table[TYPE]) else []
    other = [name for name in names if name in ("id", "time", *targets, *types)]
    if is_a(table, "pandas"):
        rest = table.drop(columns=other)
    else:
        rest = table.drop_columns(other) if is_a(table, "pyarrow") else table.drop(other)
    values = _target_values(table, targets[0]) if targets else None
    return NodeColumns(table["id"], rest, values, table[TYPE] if types else None)


def _target_columns(names: Sequence[Any], kind: Kind) -> list[str]:
    """Return the column of targets, if there is one; raise unless it is of the given kind."""
    kinds: dict[str, Kind] = {"label": "class", LABELS: "labels"}
    texts = [name for name in names if isinstance(name, str)]
    found = ["label"] if "label" in texts else target_names(texts)
    if len(found) > 1:
        raise DataError(f"nodes have columns {', '.join(found)}: expected one number to predict")
    for name in found:
        if kinds.get(name, "numbers") != kind:
            raise DataError(
                f"nodes have a column {name!r}, but the model was made with targets={kind!r}"
            )
    return found


def _target_values(table: Any, name: str) -> Any:
    """Return a column of targets, None for values that count as missing in any table.

    Labels in one text, such as ``art;law``, become lists.
    """
    if name == "label":
        values = plain_values(table[name], name)
        spelled = Counter(v.strip() for v in values if isinstance(v, str) and is_missing(v))
        say_missing("nodes", {text: spelled[text] for text in spelled if text})
        return [one_label(value) for value in values]
    if name != LABELS:
        return table[name]
    lists = (
        [*row] if hasattr(row, "__iter__") and not isinstance(row, str) else row
        for row in plain_values(table[name], name)
    )
    return [label_parts(row) if isinstance(row, str) else row for row in lists]


def _stripped(table: Any) -> Any:
    """Return a table whose column names have no surrounding spaces."""
    names = column_names(table)
    plain = [name.strip() if isinstance(name, str) else name for name in names]
    if plain == names:
        return table
    if is_a(table, "pyarrow"):
        return table.rename_columns(plain)
    return (
        table.set_axis(plain, axis=1)
        if is_a(table, "pandas")
        else table.rename(dict(zip(names, plain, strict=True)))
    )


def _is_texts(values: Any) -> bool:
    """Whether all values of a column, except gaps, are texts."""
    found = [value for value in plain_values(values, TYPE) if value is not None and value == value]
    return bool(found) and all(isinstance(value, str) for value in found)


def delta_of_named(named: NamedGraph, ids: Any, key: str | None, kind: Kind = "class") -> Delta:
    """Return a delta that adds a graph with names; ids: other names for its nodes.

    kind: of the model's targets.
    """
    graph = named.graph
    own = range(graph.num_nodes) if named.ids is None else named.ids
    nodes = as_ids(own if ids is None else ids, "ids")
    if len(nodes) != graph.num_nodes:
        raise DataError(f"ids must be as many as nodes, not {len(nodes)} for {graph.num_nodes}")
    ends, weights, relations = _edges_of(graph)
    return Delta(
        nodes=nodes,
        features=densify(graph.features),
        labels=_targets_of(named, kind),
        edges=[(nodes[source], nodes[target]) for source, target in ends],
        weights=weights,
        relations=relations,
        types=[] if graph.types is None else graph.types.of(torch.arange(graph.num_nodes)),
        key=key,
    )


def _edges_of(graph: Graph) -> tuple[list[tuple[int, int]], list[float], list[str]]:
    """Return edges as pairs of positions, and their weights and relations, if they have any.

    Two nodes that are joined by several relations have an edge for each.
    """
    if graph.relations is None:
        ends = zip(graph.indices.tolist(), graph.edge_rows().tolist(), strict=True)
        return [*ends], [] if graph.weights is None else graph.weights.tolist(), []
    pairs, numbers = graph.relations.edges()
    weights = graph.relations.edge_weights()
    names = [graph.relations.names[number] for number in numbers.tolist()]
    return [*zip(*pairs.tolist(), strict=True)], [] if weights is None else weights.tolist(), names


def _targets_of(named: NamedGraph, kind: Kind) -> list[NodeTarget | None]:
    """Return the targets of a graph's nodes; classes by name."""
    graph = named.graph
    if graph.targets is not None:
        return graph_targets(kind, graph.targets)
    labels = as_labels(graph.labels, graph.num_nodes)
    if kind != "class":
        if any(label is not None for label in labels):
            raise DataError(f"nodes have classes, but the model was made with targets={kind!r}")
        return [None] * len(labels)
    names = named.classes
    if names is None:
        return list(labels)
    return [None if label is None else names[int(label)] for label in labels]


def delta_of_data(data: Any, ids: Any, key: str | None, kind: Kind = "class") -> Delta:
    """Return a delta that adds a PyG ``Data``, with nodes named ``ids`` or 0, 1, 2, ...

    kind: of the model's targets.
    """
    if getattr(data, "x", None) is None:
        raise DataError("the Data object must have features in 'x'")
    nodes = as_ids(range(len(data.x)) if ids is None else ids, "ids")
    if len(nodes) != len(data.x):
        raise DataError(f"ids must be as many as rows of x, not {len(nodes)} for {len(data.x)}")
    rows = torch.empty(2, 0, dtype=torch.int64) if data.edge_index is None else data.edge_index
    check_edges(rows, len(nodes))
    named, weights = given_weights(data.to_dict())
    if weights is not None:
        weights = checked_weights("weight", weights, rows.shape[1])
    delta = Delta(
        nodes=nodes,
        features=as_features(data.x, len(nodes)),
        labels=targets_of_y(kind, data.y, len(nodes)),
        edges=[(nodes[source], nodes[target]) for source, target in rows.t().tolist()],
        weights=[] if weights is None else weights.tolist(),
        key=key,
    )
    say_unread("Data", data.keys(), timed=False, weights=named)
    return delta


def delta_of_hetero(data: Any, ids: Any, key: str | None, kind: Kind = "class") -> Delta:
    """Return a delta that adds a PyG ``HeteroData``, with relations and types.

    Nodes are named by type and index, such as ``paper/0``, unless ids are given, type after type.
    """
    graph = Graph.from_data(data)
    assert graph.types is not None
    kinds = graph.types.of(torch.arange(graph.num_nodes))
    indices = [index for name in data.node_types for index in range(kinds.count(name))]
    own = [f"{name}/{index}" for name, index in zip(kinds, indices, strict=True)]
    return delta_of_named(NamedGraph(graph, own), ids, key, kind)


def label_array(labels: Sequence[Label]) -> np.ndarray[Any, Any]:
    """Return labels as an array of integers, of text, or of both as objects.

    >>> label_array(["b", "a"]).tolist(), label_array([1, "1"]).dtype
    (['b', 'a'], dtype('O'))
    """
    kinds = {type(label) for label in labels}
    if kinds == {int}:
        return np.array(labels, dtype=np.int64)
    if kinds == {str}:
        return np.array(labels, dtype=np.str_)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def labels_like(ids: Any, labels: Sequence[Label]) -> Any:
    """Return predictions: a Series for pandas, a tensor for a tensor if classes are integers."""
    array = label_array(labels)
    if isinstance(ids, Tensor) and array.dtype == np.int64:
        return torch.from_numpy(array)
    return rows_like(ids, array)


def targets_like(kind: Kind, ids: Any, found: Sequence[Any]) -> Any:
    """Return predictions in the type of ``ids``.

    Classes as in ``labels_like``, labels as a list of lists or a Series of lists, numbers as an
    array, a Series or a tensor.
    """
    if kind == "class":
        return labels_like(ids, found)
    if kind == "labels":
        return rows_like(ids, [list(labels) for labels in found])
    numbers = torch.tensor(found, dtype=torch.float32)
    return numbers if isinstance(ids, Tensor) else rows_like(ids, numbers.numpy())


def rows_like(ids: Any, values: Any) -> Any:
    """Return one value per id unchanged, or as a Series for pandas."""
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
    """Return the index of a result: that of a Series, or the ids of an Index."""
    return getattr(ids, "index", ids) if type(ids).__name__ == "Series" else ids
