"""Columns of a table as arrays, with messages that name the column and the row.

Of a table that is read in pieces, ``before`` is how many rows came before this piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import UNLABELLED

if TYPE_CHECKING:
    import pyarrow


def column(table: pyarrow.Table, name: str) -> pyarrow.Array:
    """Return one column in one piece, categories as the values they stand for."""
    import pyarrow as pa

    chunks: Any = table.column(name)
    if pa.types.is_dictionary(chunks.type):
        chunks = chunks.cast(chunks.type.value_type)
    whole = chunks.combine_chunks()
    # Older versions of pyarrow keep a column without rows in pieces.
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def ids(table: pyarrow.Table, name: str, *, before: int = 0) -> pyarrow.Array:
    """Return a column of ids: int64 where they are numbers, else strings.  [rows]"""
    import pyarrow as pa

    values = column(table, name)
    numbers = pa.types.is_integer(values.type)
    if not numbers and not is_text(values.type) and len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected strings or integers")
    check_filled(values, name, before=before)
    return values.cast(pa.int64() if numbers else pa.string())


def labels(table: pyarrow.Table) -> Tensor:
    """Return the class of each node; names are numbered in sorted order.  int64 [nodes]"""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = column(table, "label")
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if is_text(values.type):
        names = sorted({name for name in pc.unique(values).to_pylist() if name})
        values = pc.index_in(values, value_set=pa.array(names, type=values.type))
    return torch.from_numpy(as_integers(values, "label").fill_null(UNLABELLED).to_numpy().copy())


def whole_numbers(table: pyarrow.Table, name: str, *, before: int = 0) -> Tensor:
    """Return a column of integers without gaps.  int64 [rows]"""
    values = column(table, name)
    check_filled(values, name, before=before)
    return torch.from_numpy(as_integers(values, name).to_numpy().copy())


def features(table: pyarrow.Table, names: list[str], *, before: int = 0) -> Tensor:
    """Return numeric columns side by side.  float32 [rows, names]"""
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        values = column(table, name)
        if not is_number(values.type):
            raise DataError(f"feature column {name!r} holds {values.type}: expected numbers")
        check_filled(values, name, before=before)
        matrix[:, place] = values.to_numpy(zero_copy_only=False)
    return torch.from_numpy(matrix)


def as_integers(values: pyarrow.Array, name: str) -> pyarrow.Array:
    """Return numbers as int64; 3.0, as pandas writes a class beside gaps, is 3."""
    import pyarrow as pa

    try:
        if pa.types.is_null(values.type) or is_number(values.type):
            return values.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(f"column {name!r} holds numbers that are not whole: {error}") from error
    raise DataError(f"column {name!r} holds {values.type}: expected integers")


def check_filled(values: pyarrow.Array, name: str, *, before: int = 0) -> None:
    """Raise if a row has no value."""
    import pyarrow.compute as pc

    empty = values.is_null()
    if is_text(values.type):
        empty = pc.or_(empty, pc.equal(pc.fill_null(values, ""), ""))
    rows = np.flatnonzero(empty.to_numpy(zero_copy_only=False))
    if len(rows):
        row = before + int(rows[0]) + 1
        raise DataError(f"row {row} has no value in column {name!r}: expected one")


def is_text(kind: pyarrow.DataType) -> bool:
    """Whether a column holds strings."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pyarrow.DataType) -> bool:
    """Whether a column holds numbers, yes and no being 1 and 0."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
