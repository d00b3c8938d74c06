"""The one reader of a table of edges, wherever it comes from.

``source`` and ``target``, ids of nodes, and optionally ``weight``, a number that is not negative
(of an edge listed twice the last counts), and ``relation``, what an edge stands for. Other columns
are ignored, which is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.notices import say, say_ignored
from evergraph.tables.columns import RELATION, WEIGHT, edge_weights, filled_texts, ids

if TYPE_CHECKING:
    import pyarrow

ENDS = ("source", "target")
UNKNOWN_EDGES = ("refuse", "skip")  # what becomes of edges to nodes that are not there


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Rows of a table of edges.

    Attributes:
        ends: ids of ``source`` and of ``target``, int64 or strings.  [rows] each
        weights: float32; None without a column.  [rows]
        relations: texts; None without a column.  [rows]
    """

    ends: tuple[pyarrow.Array, pyarrow.Array]
    weights: Tensor | None
    relations: pyarrow.Array | None


def read_edges(table: pyarrow.Table, *, before: int = 0) -> EdgeRows:
    """Return what a table of edges, or a piece of one, holds; before: rows that came before."""
    source, target = (ids(table, name, before=before) for name in ENDS)
    related = RELATION in table.column_names
    return EdgeRows(
        (source, target),
        edge_weights(table, before=before),
        filled_texts(table, RELATION, before=before) if related else None,
    )


def between(table: pyarrow.Table, node_ids: pyarrow.Array) -> pyarrow.Table:
    """Return the rows of edges both ends of which are nodes."""
    import pyarrow.compute as pc

    found = (_places(ids(table, name), node_ids).is_valid() for name in ENDS)
    return table.filter(pc.and_(*found))


def positions(rows: EdgeRows, node_ids: pyarrow.Array) -> Tensor:
    """Return the nodes that edges join.  int64 [2, edges]"""
    sides = []
    for name, values in zip(ENDS, rows.ends, strict=True):
        found = _places(values, node_ids)
        if found.null_count:
            row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
            value = values[row].as_py()
            raise DataError(f"row {row + 1} has {name} {value!r}: expected the id of a node")
        sides.append(torch.from_numpy(found.to_numpy().astype(np.int64)))
    return torch.stack(sides)


def _places(values: pyarrow.Array, node_ids: pyarrow.Array) -> pyarrow.Array:
    """Return which node each id names, null where it names none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.type != node_ids.type:  # one file has numbers, the other text
        values, node_ids = values.cast(pa.string()), node_ids.cast(pa.string())
    return pc.index_in(values, value_set=node_ids)


def say_edges_unread(path: object, columns: list[str]) -> list[str]:
    """Say which columns of an edge table are not used, and return them."""
    ignored = [name for name in columns if name not in (*ENDS, WEIGHT, RELATION)]
    used = f"only {', '.join(ENDS)}, {WEIGHT} and {RELATION} of edges are used"
    say_ignored(path, "column", ignored, used)
    return ignored


def say_skipped(path: object, edges: int) -> None:
    """Say how many edges were skipped, since they join nodes that are not there."""
    if edges:
        many = "1 edge joins" if edges == 1 else f"{edges:,} edges join"
        say(path, f"{many} a node that is not there: skipped")
