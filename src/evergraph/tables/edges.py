"""The reader of edge tables from every source.

Columns: ``source`` and ``target``, node ids; optionally ``weight``, a non-negative number (see
``graphs.validation`` for an edge that is listed twice), and ``relation``, the type of the edge. Other
columns are ignored with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, say, say_ignored
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import RELATION, WEIGHT, edge_weights, filled_texts, ids
from evergraph.tables.names import ENDS

UNKNOWN_EDGES = ("refuse", "skip")  # choices for edges to unknown nodes
_POWERS = 10 ** np.arange(1, 19)


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
    found = (_positions_of(ids(table, name), node_ids).is_valid() for name in ENDS)
    return table.filter(pc.and_(*found))


def positions(rows: EdgeRows, node_ids: pa.Array) -> Tensor:
    """Return the node positions that edges join.  int64 [2, edges]"""
    sides = []
    for name, values in zip(ENDS, rows.ends, strict=True):
        nodes = _positions_of(values, node_ids)
        if nodes.null_count:
            row = nodes.is_null().index(True).as_py()
            raise unknown_end(row, name, values[row])
        sides.append(torch.from_numpy(nodes.to_numpy().astype(np.int64)))
    return torch.stack(sides)


def unknown_end(row: int, end: str, name: pa.Scalar) -> DataError:
    """Return the error of an edge that ends at no node; row: from 0."""
    return DataError(f"row {row + 1} has {end} {name.as_py()!r}: expected the id of a node")


def _positions_of(values: pa.Array, node_ids: pa.Array) -> pa.Array:
    """Return the position of each id among the nodes, null if it is unknown."""
    if values.type != node_ids.type:  # numbers in one file, text in the other
        values, node_ids = values.cast(pa.string()), node_ids.cast(pa.string())
    return pc.index_in(values, value_set=node_ids)


def plain_numbers(values: pa.Array) -> NDArray[np.int64] | None:
    """Return ids as integers; None unless all are non-negative integers in plain notation.

    >>> import pyarrow as pa
    >>> plain_numbers(pa.array(["7", "0"])), plain_numbers(pa.array(["7", "007"]))
    (array([7, 0]), None)
    >>> plain_numbers(pa.array(["0xF4240"]))  # as long as 1000000, which it is
    """
    numbers: NDArray[np.int64]
    if pa.types.is_integer(values.type):
        numbers = values.cast(pa.int64()).to_numpy()
        return numbers if numbers.min(initial=0) >= 0 else None
    if not pc.all(pc.ascii_is_decimal(values), min_count=0).as_py():  # 0x7 and +7 are other ids
        return None
    try:
        numbers = values.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # more than 64 bits
        return None
    # 007 is another id than 7: zeros in front make the texts longer than the numbers are.
    powers = _POWERS[numbers.max(initial=0) >= _POWERS]
    digits = len(numbers) + sum(np.count_nonzero(numbers >= power) for power in powers)
    return numbers if digits == pc.sum(pc.binary_length(values), min_count=0).as_py() else None


def numeric_places(ids: pa.ChunkedArray) -> NDArray[np.int32] | None:
    """Return the node of each numeric id, -1 if there is none; None if other ids are needed.

    Integers that are not much larger than the number of nodes are looked up in an array, which
    takes a fraction of the time of a join on texts. None also if an id is repeated.

    >>> numeric_places(pa.array(["2", "0"]))[:3]
    array([ 1, -1,  0], dtype=int32)
    """
    numbers = plain_numbers(ids)
    if numbers is None or not len(numbers) or numbers.max() >= 4 * len(numbers) + 1000:
        return None
    lookup = np.full(int(numbers.max()) + 1, -1, np.int32)
    lookup[numbers] = np.arange(len(numbers), dtype=np.int32)
    are_distinct = bool((lookup[numbers] == np.arange(len(numbers))).all())
    return lookup if are_distinct else None


def places_of(values: pa.Array, places: NDArray[np.int32] | None) -> NDArray[np.int32] | None:
    """Return the nodes of ids by ``numeric_places``, -1 if unknown; None unless all are numeric."""
    numbers = None if places is None else plain_numbers(values)
    if numbers is None or places is None:
        return None
    clipped = np.minimum(numbers, len(places) - 1)
    return np.where(numbers < len(places), places[clipped], np.int32(-1))


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
