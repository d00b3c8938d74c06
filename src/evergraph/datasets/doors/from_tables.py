"""Tables of nodes and edges in memory, of pandas, Polars or Arrow, read as those in files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.datasets.columns import Columns, Encoder, Scheme
from evergraph.datasets.columns.choices import columns_of
from evergraph.datasets.doors.named import NamedGraph
from evergraph.datasets.doors.recognising import is_a
from evergraph.datasets.files.assembly import naming
from evergraph.datasets.files.table_columns import ids, plainly_typed
from evergraph.datasets.files.table_folder import ENDS, check_columns, graph_of_tables

if TYPE_CHECKING:
    import pyarrow

NODES, EDGES = Path("nodes"), Path("edges")  # what messages call the tables


def from_tables(
    nodes: Any,
    edges: Any,
    *,
    undirected: bool = False,
    columns: Columns | Mapping[str, str | Encoder] | Scheme | None = None,
    unknown_edges: str = "refuse",
) -> NamedGraph:
    """Return the graph of two tables with the ids of its nodes.

    nodes: ``id``, ``label`` and ``time`` if known, ``labels``, ``target`` or ``type``, every other
    column a feature of any kind; edges: ``source``, ``target``, ``weight`` and ``relation`` if any.
    All is as in a folder of tables, see ``table_folder``; an index of pandas that has a name is a
    column. columns: how features are read where it is not to be guessed; unknown_edges: ``skip``
    leaves out edges to ids that are no node's.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": ["a", "b"], "label": ["art", None], "size": [1.5, 2.0]})
    >>> named = from_tables(nodes, pd.DataFrame({"source": ["b"], "target": ["a"]}))
    >>> named.graph, named.ids, named.classes
    (Graph(nodes=2, edges=1, features=1, classes=1), ['a', 'b'], ['art'])
    """
    require("pyarrow", extra="tables", why="a graph from tables")
    with naming(NODES):
        table = arrow_table(nodes)
        check_columns(table.column_names, ("id",))
        names = ids(table, "id").to_pylist()
    with naming(EDGES):
        pairs = arrow_table(edges)
        check_columns(pairs.column_names, ENDS)
    chosen = columns if isinstance(columns, Scheme) else columns_of(columns)
    paths = NODES, EDGES
    graph = graph_of_tables(table, pairs, chosen, paths=paths, unknown_edges=unknown_edges)
    graph = graph.to_undirected() if undirected else graph
    return NamedGraph(graph, names, list(graph.class_names) or None)


def arrow_table(table: Any) -> pyarrow.Table:
    """Return a table of any of the three libraries as Arrow holds it."""
    import pyarrow as pa

    try:
        if is_a(table, "pandas"):
            named = any(name is not None for name in table.index.names)
            found = pa.Table.from_pandas(table.reset_index() if named else table)
            found = found.drop_columns([n for n in found.column_names if n.startswith("__index")])
        else:
            found = table.to_arrow() if is_a(table, "polars") else pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise DataError(f"cannot be read as a table ({said})") from None
    return plainly_typed(found)
