"""The reader of edge tables from every source.

Columns: ``source`` and ``target``, node ids; optionally ``weight``, a non-negative number (see
``graphs.repeats`` for an edge that is listed twice), and ``relation``, the type of the edge. Other
columns are ignored with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.notices import say, say_ignored
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import RELATION, WEIGHT, edge_weights, filled_texts, ids
from evergraph.tables.names import ENDS

UNKNOWN_EDGES = ("refuse", "skip")  # choices for edges to unknown nodes


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Rows of a table of edges."""

    # ids of ``source`` and of ``target``, int64 or strings.  [rows] each
    ends: tuple[pa.Array, pa.Array]
    weights: Tensor | None  # float32; None without a column.  [rows]
    relations: pa.Array | None  # texts; None without a column.  [rows]


def read_edges(table: pa.Table, *, before: int = 0) -> EdgeRows:
    """Return the content of an edge table or a chunk of one; before: rows in earlier chunks."""
    source, target = (ids(table, name, before=before) for name in ENDS)
    related = RELATION in table.column_names
    return EdgeRows(
        (source, target),
        edge_weights(table, before=before),
        filled_texts(table, RELATION, before=before) if related else None,
    )


def between(table: pa.Table, node_ids: pa.Array) -> pa.Table:
    """Return the rows whose two ends are both known nodes."""
    found = (_places(ids(table, name), node_ids).is_valid() for name in ENDS)
    return table.filter(pc.and_(*found))


def positions(rows: EdgeRows, node_ids: pa.Array) -> Tensor:
    """Return the node positions that edges join.  int64 [2, edges]"""
    sides = []
    for name, values in zip(ENDS, rows.ends, strict=True):
        found = _places(values, node_ids)
        if found.null_count:
            row = found.is_null().index(True).as_py()
            value = values[row].as_py()
            raise DataError(f"row {row + 1} has {name} {value!r}: expected the id of a node")
        sides.append(torch.from_numpy(found.to_numpy().astype(np.int64)))
    return torch.stack(sides)


def _places(values: pa.Array, node_ids: pa.Array) -> pa.Array:
    """Return the position of each id among the nodes, null if it is unknown."""
    if values.type != node_ids.type:  # numbers in one file, text in the other
        values, node_ids = values.cast(pa.string()), node_ids.cast(pa.string())
    return pc.index_in(values, value_set=node_ids)


def say_edges_unread(path: object, columns: list[str]) -> list[str]:
    """Warn about unused columns of an edge table, and return them."""
    ignored = [name for name in columns if name not in (*ENDS, WEIGHT, RELATION)]
    used = f"only {', '.join(ENDS)}, {WEIGHT} and {RELATION} of edges are used"
    say_ignored(path, "column", ignored, used)
    return ignored


def say_skipped(path: object, edges: int) -> None:
    """Report how many edges were skipped because a node is unknown."""
    if edges:
        many = "1 edge joins" if edges == 1 else f"{edges:,} edges join"
        say(path, f"{many} an unknown node: skipped")
