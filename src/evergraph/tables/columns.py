"""Columns of a table as arrays, with errors that name the column and the row.

Rows count from 1, without the header. For a table read in chunks, ``before`` is the number of rows
in earlier chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs.validation import WEIGHT_RULE, unsound_weights

if TYPE_CHECKING:
    import pyarrow


WEIGHT, RELATION, TYPE = "weight", "relation", "type"  # two columns of edges, one of nodes


def column(table: pyarrow.Table, name: str) -> pyarrow.Array:
    """Return a column as one array, with dictionary-encoded values decoded."""
    import pyarrow as pa

    chunks: Any = table.column(name)
    if pa.types.is_dictionary(chunks.type):
        chunks = chunks.cast(chunks.type.value_type)
    whole = chunks.combine_chunks()
    # Older versions of pyarrow return an empty column as a chunked array.
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def stripped(table: pyarrow.Table) -> pyarrow.Table:
    """Return a table with blanks stripped from its column names, such as in ``id, label``."""
    return table.rename_columns([name.strip() for name in table.column_names])


def read_named(
    read: Callable[[Mapping[str, Any]], pyarrow.Table], types: Mapping[str, Any]
) -> pyarrow.Table:
    """Return the table that ``read`` parses from a CSV, with stripped column names.

    types: by stripped name; ``read`` receives them by the names in the header.
    """
    table = read(types)
    names = {name: name.strip() for name in table.column_names}
    if any(name != plain for name, plain in names.items()):
        table = read({name: types[plain] for name, plain in names.items() if plain in types})
    return stripped(table)


def plainly_typed(table: pyarrow.Table) -> pyarrow.Table:
    """Return a table with stripped column names and the types supported here: string views become
    strings, decimals become float64.
    """
    import pyarrow as pa

    def plain(kind: pyarrow.DataType) -> pyarrow.DataType:
        if pa.types.is_decimal(kind):
            return pa.float64()
        return pa.string() if str(kind) == "string_view" else kind

    schema = pa.schema([field.with_type(plain(field.type)) for field in table.schema])
    return stripped(table.cast(schema))


def ids(table: pyarrow.Table, name: str, *, before: int = 0) -> pyarrow.Array:
    """Return a column of ids, int64 if they are integers, else strings.  [rows]"""
    import pyarrow as pa

    values = column(table, name)
    numbers = pa.types.is_integer(values.type)
    if not numbers and not is_text(values.type) and len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected strings or integers")
    check_filled(values, name, before=before)
    return values.cast(pa.int64() if numbers else pa.string())


def features(
    table: pyarrow.Table, names: list[str], *, before: int = 0, most: float = np.inf
) -> Tensor:
    """Return numeric columns side by side, all finite.  float32 [rows, names]

    most: the largest absolute value allowed.
    """
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32)
    rule = "a finite number" if most == np.inf else f"a finite number of at most {most:g}"
    for place, name in enumerate(names):
        values = column(table, name)
        if not is_number(values.type) and len(values):
            raise DataError(
                f"feature column {name!r} holds {values.type}: expected numbers, since all columns "
                "but id, label and time are features"
            )
        check_filled(values, name, before=before)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, refused below
            matrix[:, place] = values.to_numpy(zero_copy_only=False)
        wrong = ~(np.abs(matrix[:, place]) <= min(most, np.finfo(np.float32).max))
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"row {before + row + 1} has {values[row].as_py()!r} in column {name!r}: expected "
                f"{rule}"
            )
    return torch.from_numpy(matrix)


def edge_weights(table: pyarrow.Table, *, before: int = 0) -> Tensor | None:
    """Return the column ``weight`` of an edge table, or None if it is missing.  float32 [rows]"""
    if WEIGHT not in table.column_names:
        return None
    values = column(table, WEIGHT)
    if not is_number(values.type) and len(values):
        raise DataError(f"column {WEIGHT!r} holds {values.type}: expected numbers")
    check_filled(values, WEIGHT, before=before)
    weights = torch.from_numpy(values.to_numpy(zero_copy_only=False).astype(np.float64))
    wrong = unsound_weights(weights)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        raise DataError(
            f"row {before + row + 1} has {values[row].as_py()!r} in column {WEIGHT!r}: expected "
            f"{WEIGHT_RULE}"
        )
    return weights.float()


def as_integers(
    values: pyarrow.Array, name: str, *, before: int = 0, rows: NDArray[Any] | None = None
) -> pyarrow.Array:
    """Return numbers as int64; 3.0 is accepted, since pandas writes it beside gaps.

    rows: row of each value, if they are not consecutive.
    """
    import pyarrow as pa

    if pa.types.is_null(values.type):
        return values.cast(pa.int64())
    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        raise DataError(f"column {name!r} holds {values.type}: expected integers")
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False))
        # An integer of 2^63 or more does not fit 64 bits; NaN fails the comparison as well.
        wrong = ~((numbers < 2.0**63) & (numbers >= -(2.0**63)) & (np.floor(numbers) == numbers))
        row = int(wrong.argmax())
        found = before + row + 1 if rows is None else int(rows[row]) + 1
        raise DataError(
            f"row {found} has {values[row].as_py()!r} in column {name!r}: expected a whole number "
            "of 64 bits"
        ) from None


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
    """Whether a column holds numbers, including booleans."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def parsed(texts: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array | None:
    """Return texts parsed as ``kind`` by the CSV reader, or None if one of them is not."""
    import pyarrow as pa
    import pyarrow.csv as csv

    rows = ('"' + text.replace('"', '""') + '"' for text in ("column", *texts.to_pylist()))
    options = csv.ParseOptions(newlines_in_values=True)
    convert = csv.ConvertOptions(column_types={"column": kind}, null_values=[])
    source = pa.BufferReader(("\n".join(rows) + "\n").encode())
    try:
        table = csv.read_csv(source, parse_options=options, convert_options=convert)
    except pa.ArrowInvalid:
        return None
    return column(table, "column")


EXPECTED = "expected a whole number, a date or a timestamp"


def times(table: pyarrow.Table, *, before: int = 0) -> tuple[Tensor, bool]:
    """Return the times of nodes, and whether they were written as dates.  int64 [rows]

    A date or timestamp becomes seconds since 1970-01-01 in UTC, with fractions cut off. One without
    a time zone is in UTC.

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
        rows = before + np.unique(places, return_index=True)[1]  # first row of each text
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
    """Return texts as the first kind that fits all of them.  rows: row of each text"""
    import pyarrow as pa

    kinds = [pa.int64(), pa.float64()]
    kinds += [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    for kind in kinds:
        found = parsed(texts, kind)
        if found is not None:
            return found
    first = [kind for kind in kinds if parsed(texts[:1], kind) is not None]
    # Report the first text that breaks the kind which fits the longest prefix of the column.
    wrong = max((_first_other(texts, kind) for kind in first), default=0)
    like = " like those before it" if wrong else ""
    raise DataError(
        f"row {int(rows[wrong]) + 1} has {texts[wrong].as_py()!r} in column 'time': "
        f"{EXPECTED}{like}"
    )


def _first_other(texts: pyarrow.Array, kind: pyarrow.DataType) -> int:
    """Return the index of the first text not of this kind; the first is, and one is not."""
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


def is_typed(table: pyarrow.Table) -> bool:
    """Whether a node table has a text column ``type``; a numeric one is a feature."""
    return TYPE in table.column_names and is_text(column(table, TYPE).type)


def filled_texts(table: pyarrow.Table, name: str, *, before: int = 0) -> pyarrow.Array:
    """Return a text column without missing values; integers are converted to text."""
    import pyarrow as pa

    values = column(table, name)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    if not is_text(values.type) and len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected texts")
    check_filled(values, name, before=before)
    return values.cast(pa.string())


def relation_names(table: pyarrow.Table) -> list[str] | None:
    """Return the relation of each edge of a table, or None without that column."""
    if RELATION not in table.column_names:
        return None
    names: list[str] = filled_texts(table, RELATION).to_pylist()
    return names


def as_whole(values: pyarrow.Array, name: str) -> pyarrow.Array:
    """Return ids written as text in a CSV as integers.  -> int64 [rows]"""
    import pyarrow as pa

    if pa.types.is_integer(values.type):
        return values
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        row = next(row for row, text in enumerate(values) if not _is_whole(text))
        raise DataError(
            f"row {row + 1} has {values[row].as_py()!r} in column {name!r}: expected an integer of "
            "64 bits, since --integers was given"
        ) from None


def _is_whole(text: pyarrow.Scalar) -> bool:
    import pyarrow as pa

    try:
        text.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True
