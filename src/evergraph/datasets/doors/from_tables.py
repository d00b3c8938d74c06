"""Tables of nodes and edges in memory, of pandas, Polars or Arrow, read as those in files are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.datasets.doors.named import NamedGraph
from evergraph.datasets.doors.recognising import is_a
from evergraph.datasets.files.assembly import assemble, naming
from evergraph.datasets.files.table_columns import (
    column,
    edge_weights,
    features,
    ids,
    is_text,
    plainly_typed,
)
from evergraph.datasets.files.table_folder import (
    ENDS,
    check_columns,
    check_distinct,
    feature_names,
    positions,
    say_edges_unread,
)
from evergraph.datasets.files.table_labels import label_values, numbered
from evergraph.datasets.files.table_times import times

if TYPE_CHECKING:
    import pyarrow

NODES, EDGES = Path("nodes"), Path("edges")  # what messages call the tables


def from_tables(nodes: Any, edges: Any, *, undirected: bool = False) -> NamedGraph:
    """Return the graph of two tables with the ids of its nodes.

    nodes: ``id``, ``label`` and ``time`` if known, every other column a feature; edges: ``source``,
    ``target`` and ``weight`` if any. All is as in a folder of tables, see ``table_folder``; an
    index of pandas that has a name is a column.

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
        names = ids(table, "id")
        check_distinct(names)
    with naming(EDGES):
        pairs = arrow_table(edges)
        check_columns(pairs.column_names, ENDS)
        ends = [positions(pairs, side, names) for side in ENDS]
        weights = edge_weights(pairs)
    with naming(NODES):
        labels = _labels(table)
        columns = feature_names(table.column_names)
        graph = assemble(
            NODES,
            edge_index=torch.stack(ends),
            features=features(table, columns),
            labels=numbered(labels),
            time=times(table)[0] if "time" in table.column_names else None,
            names=columns,
            weights=weights,
        )
    say_edges_unread(EDGES, pairs.column_names)
    graph = graph.to_undirected() if undirected else graph
    return NamedGraph(graph, names.to_pylist(), _classes(labels))


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


def _labels(table: pyarrow.Table) -> pyarrow.Array:
    import pyarrow as pa

    if "label" not in table.column_names:
        return pa.nulls(table.num_rows, pa.int64())
    return label_values(column(table, "label"), guess=False)


def _classes(labels: pyarrow.Array) -> list[str] | None:
    if not is_text(labels.type):
        return None
    return sorted(name for name in labels.unique().to_pylist() if name is not None)
