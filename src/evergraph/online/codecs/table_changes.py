"""Columns of tables that say what is to change: ``op`` and ``weight``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_columns import check_filled, column, is_number, is_text
from evergraph.online.checking import WEIGHT_RULE, is_weight

if TYPE_CHECKING:
    import pyarrow


def operations(table: pyarrow.Table, allowed: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Return of which rows the column ``op`` says what; one without a value says the first.

    allowed: what it may say; -> bool [rows] for each

    >>> import pyarrow as pa
    >>> operations(pa.table({"op": ["remove", None]}), ("add", "remove"))["add"].tolist()
    [False, True]
    """
    values = column(table, "op")
    if not is_text(values.type) and values.null_count < len(values):
        raise DataError(f"column 'op' holds {values.type}: expected {_either(allowed)}")
    said = np.array([value or allowed[0] for value in values.to_pylist()], dtype=object)
    strange = ~np.isin(said, allowed)
    if strange.any():
        row = int(strange.argmax())
        raise DataError(
            f"row {row + 1} has {said[row]!r} in column 'op': expected {_either(allowed)}"
        )
    return {op: said == op for op in allowed}


def _either(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def weights(
    table: pyarrow.Table, *, needed: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the column ``weight``; rows that are not needed may have none.  float64 [rows]

    >>> import pyarrow as pa
    >>> weights(pa.table({"weight": [1.5, -1.0]}))
    Traceback (most recent call last):
    evergraph.core.errors.DataError: row 2 has -1.0 in column 'weight': expected 0, for no edge, \
or a number from 1e-12 to 1e+12
    """
    values = column(table, "weight")
    if not is_number(values.type) and values.null_count < len(values):
        raise DataError(f"column 'weight' holds {values.type}: expected numbers")
    if needed is None:
        check_filled(values, "weight")
    found = np.array(values.to_numpy(zero_copy_only=False), np.float64)  # NaN where there is none
    wrong = np.array([not is_weight(weight) for weight in found.tolist()], bool)
    if needed is not None:
        wrong &= needed
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"row {row + 1} has {values[row].as_py()!r} in column 'weight': expected {WEIGHT_RULE}"
        )
    return found
