"""Conversion of any supported object to a ``Graph``.

Objects are recognised by their class, without importing a library that the caller does not use:
PyG's ``Data`` and ``HeteroData``, NetworkX graphs, SciPy sparse matrices, and pandas, Polars or
Arrow tables of nodes and edges.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.component import Shown
from evergraph.core.errors import ConfigurationError, DataError, listed, say, say_ignored
from evergraph.core.packages import require
from evergraph.datasets.table_folder import graph_of_tables
from evergraph.graphs import Graph
from evergraph.graphs.csr import csr_tensor
from evergraph.tables import Columns, Encoder, Scheme
from evergraph.tables.choices import columns_of
from evergraph.tables.columns import ids
from evergraph.tables.frames import arrow_table, is_a, is_pyg, is_sparse, is_table
from evergraph.tables.labels import numbered_labels, say_alike
from evergraph.tables.names import (
    ENDS,
    OF_EDGES,
    OF_NODES,
    ColumnNames,
    check_columns,
    of_edges,
    of_nodes,
    renamed,
)
from evergraph.tables.sources import named, naming

if TYPE_CHECKING:
    import networkx
    from typing_extensions import Unpack

COLUMNS = (*OF_NODES, *OF_EDGES)  # that have a meaning in tables
KINDS = (
    "a Graph, PyG's Data or HeteroData, a NetworkX graph, a SciPy sparse matrix or a pair of "
    "tables (nodes, edges)"
)
VECTOR = "x"  # the attribute with all features of a node
LABELS = ("label", "y")
TIME = "time"
WEIGHT = "weight"
WHERE = "NetworkX graph"
Attributes = Mapping[Hashable, Mapping[str, Any]]
NODES, EDGES = Path("nodes"), Path("edges")  # names of the tables in messages


@dataclass(frozen=True, eq=False, repr=False)
class NamedGraph(Shown):
    """A graph with the names of its nodes and classes.

    Attributes:
        graph: the graph.
        ids: ids of its nodes, in order; None if they are numbered.
        classes: class names if labels are names; None if they are numbers.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([1, 0]))
    >>> NamedGraph(pair, ids=["ada", "bob"], classes=("art", "music"))
    NamedGraph(graph=Graph(nodes=2, edges=1, features=2, classes=2), named=True,
    classes=('art', 'music'))
    """

    graph: Graph
    ids: Sequence[Hashable] | None = None
    classes: Sequence[str] | None = None

    def _repr_facts(self) -> dict[str, object]:
        return {"graph": self.graph, "named": self.ids is not None, "classes": self.classes}

    def _repr_table(self) -> dict[str, object]:
        facts: dict[str, object] = dict(self.graph._repr_facts())
        for name, values in (("ids", self.ids), ("names of classes", self.classes)):
            if values is not None:
                facts[name] = listed(values)
        return facts


def as_graph(source: Any, /, *, undirected: bool = False, **options: Any) -> Graph:
    """Return the graph that an object is or holds; see ``named_graph`` for supported objects.

    A ``Graph`` is returned unchanged.

    >>> import networkx as nx
    >>> as_graph(nx.path_graph(3))
    Graph(nodes=3, edges=4, features=0, classes=0)
    """
    if isinstance(source, Graph) and not options:
        return source.to_undirected() if undirected else source
    return named_graph(source, undirected=undirected, **options).graph


def named_graph(source: Any, /, *, undirected: bool = False, **options: Any) -> NamedGraph:
    """Return the graph that an object holds, with the names of its nodes and classes.

    Args:
        source: a ``Graph``; PyG's ``Data`` or ``HeteroData``; a NetworkX graph; a sparse SciPy
            adjacency matrix, or the tuple (adjacency, features, labels); a table of nodes with
            ``edges=``, or the tuple (nodes, edges), from pandas, Polars or Arrow.
        undirected: whether to add the reverse of every edge.
        options: ``features`` and ``labels`` with NetworkX (attribute names) and SciPy (a matrix,
            one label per node), and ``weight`` with NetworkX (an attribute of edges); with a table
            of nodes ``edges``, ``columns`` (how to read its features), ``unknown_edges`` and names
            of columns such as ``id="customer_id"``, as in ``load``; ``repeated``, as in ``load``.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": [7, 9], "label": ["x", "y"], "size": [1.0, 2.0]})
    >>> named_graph(nodes, edges=pd.DataFrame({"source": [7], "target": [9]})).ids
    [7, 9]
    """
    source, options = _unpacked(source, options)
    adapters: tuple[tuple[Any, Any, tuple[str, ...]], ...] = (
        (_is_networkx, from_networkx, ("features", "labels", "weight", "repeated")),
        (is_sparse, from_scipy, ("features", "labels", "repeated")),
        (is_table, from_tables, ("edges", "columns", "unknown_edges", "repeated", *COLUMNS)),
        (lambda value: isinstance(value, Graph) or is_pyg(value), _plain, ("repeated",)),
    )
    kind = type(source).__name__
    for recognises, adapter, accepted in adapters:
        if recognises(source):
            for name in options:
                if name not in accepted:
                    accepted_names = " and ".join(accepted)
                    message = f"{kind} accepts only {accepted_names} as options, not {name!r}"
                    raise ConfigurationError(message)
            if "edges" in accepted and "edges" not in options:
                message = f"{kind} of nodes needs edges: pass the pair (nodes, edges)"
                raise ConfigurationError(message)
            named: NamedGraph = adapter(source, undirected=undirected, **options)
            classes = tuple(named.classes or ())
            if not is_table(source):  # the reader of tables has logged it already
                say_alike(kind, classes)
            return replace(named, graph=replace(named.graph, class_names=classes))
    raise ConfigurationError(f"a graph must be {KINDS}, not {kind}")


def _is_networkx(value: object) -> bool:
    return is_a(value, "networkx", "Graph")


def _plain(source: Any, *, undirected: bool, repeated: str = "last") -> NamedGraph:
    if not isinstance(source, Graph):
        return NamedGraph(Graph.from_data(source, undirected=undirected, repeated=repeated))
    graph = source.to_undirected() if undirected else source
    return NamedGraph(graph, classes=graph.class_names or None)


def holds_graph(source: Any) -> bool:
    """Whether ``as_graph`` accepts an object.

    >>> holds_graph(["a", "b"]), holds_graph(())
    (False, False)
    """
    source = source[0] if isinstance(source, tuple) and source else source
    adapters = (_is_networkx, is_sparse, is_table, is_pyg)
    return isinstance(source, Graph) or any(recognises(source) for recognises in adapters)


def _unpacked(source: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the first item of a tuple, and the others as named options."""
    if not isinstance(source, tuple) or not source:
        return source, options
    first, *others = source
    names = ("edges",) if is_table(first) else ("features", "labels") if is_sparse(first) else ()
    if len(others) > len(names):
        raise ConfigurationError(
            f"a graph must be {KINDS}, not a tuple of {len(source)} items that begins with "
            f"{type(first).__name__}"
        )
    return first, dict(zip(names, others, strict=False)) | options


def from_networkx(
    source: networkx.Graph,
    *,
    features: str | Sequence[str] | None = None,
    labels: str | Mapping[Hashable, Any] | None = None,
    weight: str = WEIGHT,
    undirected: bool = False,
    repeated: str = "last",
) -> NamedGraph:
    """Return a NetworkX graph with the names of its nodes, which may be any hashable objects.

    Edges of a ``networkx.Graph`` are undirected, those of a ``DiGraph`` directed. The attributes
    ``time`` of nodes and ``weight`` of edges are read if present; the default weight is 1.

    features: the attribute with a node's features as a list, or the names of attributes with one
    number each; by default ``x``, or no features if it is missing; labels: the attribute with the
    class, or classes by node; by default ``label``, else ``y``, else the only one with few texts.
    Nodes may lack it.
    """
    nodes: Attributes = dict(source.nodes(data=True))
    if isinstance(labels, Mapping):
        if unknown := [node for node in labels if node not in nodes]:
            message = f"labels names {unknown[0]!r}, which is not a node of the graph"
            raise DataError(message)
        nodes = {
            node: {**attributes, LABELS[0]: labels.get(node, attributes.get(LABELS[0]))}
            for node, attributes in nodes.items()
        }
        labels = LABELS[0]
    attribute_names = {name for attributes in nodes.values() for name in attributes}
    if labels is not None and labels not in attribute_names:
        raise DataError(f"labels must name an attribute of nodes, but no node has {labels!r}")
    feature_names = [features or VECTOR] if isinstance(features, str | None) else [*features]
    label = labels or next((name for name in LABELS if name in attribute_names), None)
    label = label or _likely_label(nodes, {VECTOR, TIME, *feature_names})
    numbers, classes = numbered_labels([attributes.get(label) for attributes in nodes.values()])
    times = [attributes.get(TIME) for attributes in nodes.values()]
    ends, weights = _edges(source, list(nodes), weight)
    graph = Graph.from_edges(
        ends,
        features=_features(nodes, feature_names if features or VECTOR in attribute_names else []),
        labels=numbers,
        time=torch.tensor(times) if times and None not in times else None,
        undirected=undirected or not source.is_directed(),
        weights=weights,
        repeated=repeated,
        where=WHERE,
    )
    unread = sorted(map(str, attribute_names - {*feature_names, label, TIME}))
    why = f"only {', '.join(feature_names)}, {label} and {TIME} of nodes are used"
    say_ignored(WHERE, "attribute", unread, why)
    edge_attributes = {name for *_, attributes in source.edges(data=True) for name in attributes}
    unread = sorted(map(str, edge_attributes - {weight}))
    say_ignored(WHERE, "attribute", unread, f"only {weight} of edges is used")
    return NamedGraph(graph, list(nodes), classes)


def _likely_label(nodes: Attributes, used: Collection[str]) -> str:
    """Return the only attribute with few texts, and say so; the usual name if there is none."""
    likely = []
    for name in dict.fromkeys(name for attributes in nodes.values() for name in attributes):
        if name in used:
            continue
        values = [attributes[name] for attributes in nodes.values() if name in attributes]
        are_texts = all(isinstance(value, str) for value in values)
        if are_texts and 2 <= len(set(values)) <= len(values) / 4:
            likely.append(str(name))
    if len(likely) != 1:
        return LABELS[0]
    say(WHERE, f"the attribute {likely[0]!r} is taken as the label: labels= names another one")
    return likely[0]


def _features(nodes: Attributes, names: Sequence[str]) -> Tensor:
    """Return the features of all nodes: some attributes of theirs.  -> float32 [nodes, dims]"""
    if not names:
        return torch.zeros(len(nodes), 0)
    for node, attributes in nodes.items():
        for name in names:
            if attributes.get(name) is None:
                message = f"node {node!r} has no attribute {name!r}: features need it on every node"
                raise DataError(message)
    rows = []
    for attributes in nodes.values():
        rows.append(np.concatenate([np.ravel(attributes[name]) for name in names]))
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise DataError(f"features must have one width on all nodes, not {sorted(widths)}")
    try:
        matrix = np.array(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"features of nodes must be numbers: {error}") from None
    return torch.from_numpy(matrix.reshape(len(nodes), -1))


def _edges(
    source: networkx.Graph, nodes: Sequence[Hashable], weight: str
) -> tuple[Tensor, Tensor | None]:
    """Return edges as positions, and their weights if any has one.  -> int64 [2, edges]"""
    position = {node: number for number, node in enumerate(nodes)}
    edges = list(source.edges(data=weight))
    ends = [(position[start], position[end]) for start, end, _ in edges]
    pairs = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).t()
    weights = [edge_weight for *_, edge_weight in edges]
    if all(edge_weight is None for edge_weight in weights):
        return pairs, None
    return pairs, torch.tensor([1.0 if w is None else float(w) for w in weights]).double()


def from_tables(
    nodes: Any,
    edges: Any,
    *,
    undirected: bool = False,
    columns: Columns | Mapping[str, str | Encoder] | Scheme | None = None,
    unknown_edges: str = "refuse",
    repeated: str = "last",
    **names: Unpack[ColumnNames],
) -> NamedGraph:
    """Return the graph of two tables with the ids of its nodes, by the rules of a folder of tables.

    A named pandas index is a column.
    """
    require("pyarrow", extra="tables", why="a graph from tables")
    paths = named(NODES, of_nodes(names)), named(EDGES, of_edges(names))
    with naming(paths[0]):
        table = renamed(arrow_table(_indexed(nodes)), of_nodes(names))
        check_columns(table.column_names, ("id",), lambda: table)
        node_ids = ids(table, "id").to_pylist()
    with naming(paths[1]):
        edge_table = renamed(arrow_table(_indexed(edges)), of_edges(names))
        check_columns(edge_table.column_names, ENDS, lambda: edge_table)
    chosen = columns if isinstance(columns, Scheme) else columns_of(columns)
    options = {"unknown_edges": unknown_edges, "repeated": repeated}
    graph = graph_of_tables(
        table, edge_table, chosen, paths=paths, undirected=undirected, **options
    )
    graph = graph.to_undirected() if undirected else graph
    return NamedGraph(graph, node_ids, list(graph.class_names) or None)


def _indexed(table: Any) -> Any:
    """Return a table with its index as a column if the index has a name."""
    named = is_a(table, "pandas") and any(name is not None for name in table.index.names)
    return table.reset_index() if named else table


def from_scipy(
    adjacency: Any,
    *,
    features: Any = None,
    labels: Any = None,
    undirected: bool = False,
    repeated: str = "last",
) -> NamedGraph:
    """Return the graph of an adjacency matrix; zero entries are not edges.

    adjacency: sparse [nodes, nodes]; if all entries are 1, edges have no weights; features: one row
    per node, as an array, a tensor or a sparse matrix; none by default; labels: one per node,
    numbers or texts; None, NaN or -1 is a missing label.

    >>> import scipy.sparse
    >>> path = scipy.sparse.csr_array(np.array([[0, 2, 0], [0, 0, 1], [0, 0, 0]]))
    >>> graph = from_scipy(path, features=np.eye(3), labels=["x", "y", None]).graph
    >>> graph, graph.neighbours(1).tolist(), graph.weights.tolist()
    (Graph(nodes=3, edges=2, features=3, classes=2), [0], [2.0, 1.0])
    """
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise DataError(f"adjacency has shape {adjacency.shape}: expected [nodes, nodes]")
    nodes = adjacency.shape[0]
    entries = adjacency.tocoo()
    weights = None if bool((entries.data == 1).all()) else torch.from_numpy(_real(entries.data))
    label_list = labels.tolist() if hasattr(labels, "tolist") else list(labels or ())
    if labels is not None and len(label_list) != nodes:
        raise DataError(f"labels must be as many as nodes, not {len(label_list)} for {nodes} nodes")
    numbers, classes = numbered_labels([None] * nodes if labels is None else label_list)
    graph = Graph.from_edges(
        torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64)),
        features=_matrix_features(features, nodes),
        labels=numbers,
        undirected=undirected,
        weights=weights,
        repeated=repeated,
        where="adjacency",
    )
    return NamedGraph(graph, None, classes)


def _real(values: Any) -> Any:
    if values.dtype.kind not in "biuf":
        raise DataError(f"adjacency holds {values.dtype}: expected real numbers")
    return values.astype(np.float64)


def _matrix_features(features: Any, nodes: int) -> Tensor:
    """Return features as a tensor, sparse if they were sparse.  -> float32 [nodes, dims]"""
    if features is None:
        return torch.zeros(nodes, 0)
    if isinstance(features, Tensor):
        return features
    if is_sparse(features):
        rows = features.tocsr()
        rows.sum_duplicates()
        parts = (rows.indptr, rows.indices, _real(rows.data))
        indptr, indices, values = (torch.from_numpy(np.array(part)) for part in parts)
        return csr_tensor(indptr, indices, values.float(), tuple(rows.shape))
    try:
        return torch.from_numpy(np.array(features, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"features must be a matrix of numbers: {error}") from None
