"""Operations in tables: the column ``op``, and rows that remove nodes or edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import RELATION, WEIGHT, column, is_number, is_text

NODE_OPS = ("add", "update", "forget")
EDGE_OPS = ("add", "remove")


def says_operations(table: pa.Table) -> bool:
    """Whether a table of nodes has a column ``op`` of texts; one of numbers is a feature."""
    return "op" in table.column_names and not is_number(column(table, "op").type)


def operations(table: pa.Table, allowed: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Return the rows of each operation in the column ``op``; an empty cell means the first.

    allowed: the operations; -> bool [rows] for each

    >>> import pyarrow as pa
    >>> operations(pa.table({"op": ["remove", None]}), ("add", "remove"))["add"].tolist()
    [False, True]
    """
    values = column(table, "op")
    either = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    if not is_text(values.type) and values.null_count < len(values):
        raise DataError(f"column 'op' holds {values.type}: expected {either}")
    found = pc.index_in(values.cast(pa.string()), value_set=pa.array(["", *allowed]))
    numbers = np.where(values.is_null(), 0, found.fill_null(-1))
    if (numbers < 0).any():
        row = int((numbers < 0).argmax())
        raise DataError(
            f"row {row + 1} has {values[row].as_py()!r} in column 'op': expected {either}"
        )
    numbers = np.maximum(numbers, 1)  # empty cells mean the first operation
    return {op: numbers == number for number, op in enumerate(allowed, 1)}


def filled_where_removed(table: pa.Table, removed: NDArray[np.bool_]) -> pa.Table:
    """Fill in weights and relations of rows that remove an edge, where they may be missing."""
    for name in (WEIGHT, RELATION):
        if name not in table.column_names:
            continue
        values = column(table, name)
        if name == WEIGHT and is_text(values.type):  # name the first row that is not a number
            for row, text in enumerate(values.to_pylist()):
                try:
                    float(text or "nan")
                except ValueError:
                    raise DataError(
                        f"row {row + 1} has {text!r} in column {WEIGHT!r}: expected a number"
                    ) from None
        if pa.types.is_null(values.type):
            values = values.cast(pa.float64() if name == WEIGHT else pa.string())
        if is_number(values.type) or is_text(values.type):  # others are rejected when read
            some = pa.scalar(0 if is_number(values.type) else "-").cast(values.type)
            values = pc.if_else(pa.array(removed), some, values)
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def check_one_operation(ends: tuple[pa.Array, pa.Array], removed: NDArray[np.bool_]) -> None:
    """Raise if an edge is both added and removed, in either direction, which would be ambiguous."""
    if not removed.any() or removed.all():
        return
    pairs = [frozenset(pair) for pair in zip(*(side.to_pylist() for side in ends), strict=True)]
    gone = {pairs[row]: row for row in reversed(np.flatnonzero(removed).tolist())}
    for row in np.flatnonzero(~removed).tolist():
        if pairs[row] in gone:
            first, last = sorted((row, gone[pairs[row]]))
            raise DataError(
                f"row {last + 1} has {'remove' if last != row else 'add'!r} in column 'op' for the "
                f"edge of row {first + 1}: expected one operation per edge, so give two tables"
            )


def without_gaps(table: pa.Table, names: Sequence[str], rows: NDArray[np.bool_]) -> pa.Table:
    """Fill gaps in number columns with 0 in rows of nodes to forget."""
    if not rows.any():
        return table
    for name in names:
        values = column(table, name)
        if pa.types.is_null(values.type):
            values = values.cast(pa.float64())
        if values.null_count and is_number(values.type):
            gaps = pc.and_(values.is_null(), pa.array(rows))
            filled = pc.if_else(gaps, pa.scalar(0, values.type), values)
            table = table.set_column(table.column_names.index(name), name, filled)
    return table
