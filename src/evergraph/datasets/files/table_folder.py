"""Graphs in a folder of two tables: ``nodes`` and ``edges``, each ``.csv`` or ``.parquet``.

nodes: ``id`` (string or integer), ``label`` (integer or string; see ``table_labels`` for how a
missing one is written), optionally ``time`` (integer, date or timestamp; see ``table_times``);
every other column is a numeric feature. edges: ``source`` and ``target``, ids of nodes, and
optionally ``weight``, a number that is not negative; of an edge listed twice the last counts. Other
columns are ignored, which is said. Messages count rows from 1, the header not included.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.core.notices import say_ignored
from evergraph.datasets.download import reason
from evergraph.datasets.files.assembly import assemble, naming
from evergraph.datasets.files.table_columns import WEIGHT, edge_weights, features, ids
from evergraph.datasets.files.table_labels import labels
from evergraph.datasets.files.table_times import times
from evergraph.graphs import Graph

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".csv", ".parquet")
RESERVED = ("id", "label", "time")
ENDS = ("source", "target")
# Columns of a CSV whose kind depends on all rows, or that stay text.
TEXT = ("id", "source", "target", "label", "time")


def read_table_folder(folder: Path) -> Graph:
    """Return the graph that a folder of tables holds, edges as listed."""
    nodes_path, edges_path = find_table(folder, "nodes"), find_table(folder, "edges")
    require("pyarrow", extra="tables", why=f"reading the tables in {folder}")
    with naming(nodes_path):
        nodes = read_table(nodes_path, ("id", "label"))
        node_ids = ids(nodes, "id")
        check_distinct(node_ids)
    with naming(edges_path):
        edges = read_table(edges_path, ENDS)
        ends = [positions(edges, column, node_ids) for column in ENDS]
        weights = edge_weights(edges)
    names = feature_names(nodes.column_names)
    with naming(nodes_path):
        graph = assemble(
            nodes_path,
            edge_index=torch.stack(ends),
            features=features(nodes, names),
            labels=labels(nodes, nodes_path),
            time=times(nodes)[0] if "time" in nodes.column_names else None,
            names=names,
            weights=weights,
        )
    say_edges_unread(edges_path, edges.column_names)
    return graph


def feature_names(columns: list[str]) -> list[str]:
    """Return which columns of a node table are features."""
    return [name for name in columns if name not in RESERVED]


def say_edges_unread(path: object, columns: list[str]) -> list[str]:
    """Say which columns of an edge table are not used, and return them."""
    ignored = [name for name in columns if name not in (*ENDS, WEIGHT)]
    say_ignored(path, "column", ignored, "only source, target and weight of edges are used")
    return ignored


def find_table(folder: Path, name: str) -> Path:
    """Return the one file of the folder that holds the table called ``name``."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if not found:
        raise DataError(f"{folder}: has no table of {name}: expected {name}.csv or {name}.parquet")
    if len(found) > 1:
        raise DataError(f"{folder}: has both {name}.csv and {name}.parquet: expected one of them")
    return found[0]


def read_table(path: Path, columns: tuple[str, ...]) -> pyarrow.Table:
    """Read a table that has at least the given columns.

    Ids in a CSV stay text, so that ``007`` and ``7`` are two nodes in both files. Labels and times
    are text as well until all of them are known.
    """
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            table: Any = pyarrow.parquet.read_table(path)
        else:
            text = {name: pyarrow.string() for name in TEXT}
            options = pyarrow.csv.ConvertOptions(column_types=text)
            table = _read_csv(path, options)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as a table ({reason(error)})") from error
    check_columns(table.column_names, columns)
    return table


def _read_csv(path: Path, convert: Any) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.csv as csv

    try:
        return csv.read_csv(path, convert_options=convert)
    except pa.ArrowInvalid:
        pass
    try:  # only one thread knows the row
        return csv.read_csv(
            path, convert_options=convert, read_options=csv.ReadOptions(use_threads=False)
        )
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(rows_from_one(str(error), -1)) from error


def rows_from_one(said: str, shift: int) -> str:
    """Return a message of pyarrow with its rows as we count them; it counts the header.

    >>> rows_from_one("CSV parse error: Row #3: Expected 2 columns, got 1", -1)
    'CSV parse error: row 2: Expected 2 columns, got 1'
    """
    return re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) + shift}", said)


def check_columns(found: list[str], needed: tuple[str, ...]) -> None:
    """Raise unless every needed column is there and none is there twice."""
    for column in needed:
        if column not in found:
            raise DataError(f"has no column {column!r}: it has {', '.join(found)}")
    for column in found:
        if found.count(column) > 1:
            raise DataError(f"has {found.count(column)} columns called {column!r}: expected one")


def check_distinct(node_ids: pyarrow.Array) -> None:
    """Raise if two nodes have the same id."""
    import pyarrow.compute as pc

    first = pc.index_in(node_ids, value_set=node_ids).to_numpy(zero_copy_only=False)
    again = np.flatnonzero(first != np.arange(len(first)))
    if len(again):
        row = int(again[0])
        raise DataError(
            f"row {row + 1} repeats id {node_ids[row].as_py()!r} of row {int(first[row]) + 1}: "
            f"expected every id once"
        )


def positions(edges: pyarrow.Table, column: str, node_ids: pyarrow.Array) -> Tensor:
    """Return the node that each id of a column names.  int64 [edges]"""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = ids(edges, column)
    if values.type != node_ids.type:  # one file has numbers, the other text
        values, node_ids = values.cast(pa.string()), node_ids.cast(pa.string())
    found = pc.index_in(values, value_set=node_ids)
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"row {row + 1} has {column} {values[row].as_py()!r}: expected the id of a node"
        )
    return torch.from_numpy(found.to_numpy().astype(np.int64))
