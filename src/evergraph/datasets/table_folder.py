"""Graphs in a folder of two tables: ``nodes`` and ``edges``, each ``.csv`` or ``.parquet``.

nodes: ``id`` (string or integer), ``label`` (integer or string, empty where not known), optionally
``time`` (integer); every other column is a numeric feature. edges: ``source`` and ``target``, ids
of nodes; other columns are ignored. Messages count rows from 1, the header not included.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.datasets.assembly import assemble, naming
from evergraph.datasets.download import reason
from evergraph.datasets.table_columns import features, ids, labels, whole_numbers
from evergraph.graphs import Graph

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".csv", ".parquet")
RESERVED = ("id", "label", "time")


def read_table_folder(folder: Path) -> Graph:
    """Return the graph that a folder of tables holds, edges as listed."""
    nodes_path, edges_path = find_table(folder, "nodes"), find_table(folder, "edges")
    with naming(nodes_path):
        nodes = read_table(nodes_path, ("id", "label"))
        node_ids = ids(nodes, "id")
        check_distinct(node_ids)
    with naming(edges_path):
        edges = read_table(edges_path, ("source", "target"))
        ends = [positions(edges, column, node_ids) for column in ("source", "target")]
    with naming(nodes_path):
        return assemble(
            edge_index=torch.stack(ends),
            features=features(nodes, [c for c in nodes.column_names if c not in RESERVED]),
            labels=labels(nodes),
            time=whole_numbers(nodes, "time") if "time" in nodes.column_names else None,
        )


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

    Ids in a CSV stay text, so that ``007`` and ``7`` are two nodes in both files.
    """
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            table: Any = pyarrow.parquet.read_table(path)
        else:
            text = {name: pyarrow.string() for name in ("id", "source", "target")}
            options = pyarrow.csv.ConvertOptions(column_types=text)
            table = pyarrow.csv.read_csv(path, convert_options=options)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as a table ({reason(error)})") from error
    check_columns(table.column_names, columns)
    return table


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
