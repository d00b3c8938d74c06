"""The column of times: whole numbers, or dates as seconds since the beginning of 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_columns import (
    as_integers,
    check_filled,
    column,
    is_text,
    parsed,
)

if TYPE_CHECKING:
    import pyarrow

EXPECTED = "expected a whole number, a date or a timestamp"


def times(table: pyarrow.Table, *, before: int = 0) -> tuple[Tensor, bool]:
    """Return when nodes appeared, and whether that was written as dates.  int64 [rows]

    A date or a timestamp becomes the seconds since 1970-01-01 in UTC, fractions cut off; one
    without a zone is taken to be in UTC.

    >>> import pyarrow as pa
    >>> times(pa.table({"time": ["1970-01-02", "1970-01-01T00:00:07.9"]}))
    (tensor([86400,     7]), True)
    >>> times(pa.table({"time": [2019, 2020]}))
    (tensor([2019, 2020]), False)
    """
    import pyarrow as pa

    values = column(table, "time")
    check_filled(values, "time", before=before)
    rows: NDArray[Any] | None = None
    places: NDArray[Any] | None = None
    if is_text(values.type):
        coded = values.dictionary_encode()
        places = coded.indices.to_numpy()
        rows = before + np.unique(places, return_index=True)[1]  # that has each text first
        values = _read(coded.dictionary, rows)
    dates = pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)
    if dates:
        whole = _seconds(values)
    elif pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        whole = as_integers(values, "time", before=before, rows=rows).to_numpy()
    elif len(values):
        raise DataError(f"column 'time' holds {values.type}: {EXPECTED}")
    else:
        whole = np.empty(0, np.int64)
    found = whole if places is None else whole[places]
    return torch.from_numpy(np.array(found, np.int64)), dates


def _read(texts: pyarrow.Array, rows: NDArray[Any]) -> pyarrow.Array:
    """Return texts as the first kind that all of them are.  rows: from which they are"""
    import pyarrow as pa

    kinds = [pa.int64(), pa.float64()]
    kinds += [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    for kind in kinds:
        found = parsed(texts, kind)
        if found is not None:
            return found
    first = [kind for kind in kinds if parsed(texts[:1], kind) is not None]
    # The kind that the longest beginning of the column is of: what comes behind it is wrong.
    wrong = max((_first_other(texts, kind) for kind in first), default=0)
    like = " like those before it" if wrong else ""
    raise DataError(
        f"row {int(rows[wrong]) + 1} has {texts[wrong].as_py()!r} in column 'time': "
        f"{EXPECTED}{like}"
    )


def _first_other(texts: pyarrow.Array, kind: pyarrow.DataType) -> int:
    """Return where the first text stands that is not of a kind; one is, and the first one is."""
    low, high = 1, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if parsed(texts[:middle], kind) is not None else (low, middle)
    return low


def _seconds(values: pyarrow.Array) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_date(values.type):
        days: NDArray[Any] = values.cast(pa.date32()).cast(pa.int32()).to_numpy()
        return days.astype(np.int64) * 86_400
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[values.type.unit]
    seconds: NDArray[Any] = values.cast(pa.int64()).to_numpy() // ticks
    return seconds
