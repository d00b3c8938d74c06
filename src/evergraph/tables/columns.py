"""Columns of a table as arrays, with errors that name the column and the row.

Rows count from 1, without the header. For a table read in chunks, ``before`` is the number of rows
in earlier chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, say
from evergraph.graphs.validation import WEIGHT_RULE, unsound_weights
from evergraph.tables.arrow import csv, pa, pc

WEIGHT, RELATION, TYPE = "weight", "relation", "type"  # two columns of edges, one of nodes
EXPECTED = "a whole number, a date or a timestamp"
DOMINANT = 1_000.0  # times the median column's largest value
_VALUES_PER_BLOCK = 1 << 22  # values processed together


def mixed(values: Sequence[Any]) -> pa.Array:
    """Return values as a column, of texts and integers as well, as Python and JSON have ids.

    >>> mixed(["a", 7, None]).to_pylist()
    ['a', 7, None]
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds != {str, int}:
        return pa.array(values)
    texts, numbers = ([v for v in values if isinstance(v, int) is whole] for whole in (False, True))
    whole = np.array([isinstance(value, int) for value in values])
    places = np.where(whole, np.cumsum(whole), np.cumsum(~whole)) - 1
    return pa.UnionArray.from_dense(
        pa.array(whole.astype(np.int8)),
        pa.array(places.astype(np.int32)),
        [pa.array(texts, pa.string()), pa.array(numbers, pa.int64())],
    )


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array, with dictionary-encoded values decoded."""
    chunks: Any = table.column(name)
    if pa.types.is_dictionary(chunks.type):
        chunks = chunks.cast(chunks.type.value_type)
    whole = chunks.combine_chunks()
    # Older versions of pyarrow return an empty column as a chunked array.
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def stripped(table: pa.Table) -> pa.Table:
    """Return a table with blanks stripped from its column names, such as in ``id, label``."""
    return table.rename_columns([name.strip() for name in table.column_names])


def plainly_typed(table: pa.Table) -> pa.Table:
    """Return a table with stripped names, string views as strings and decimals as float64."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.float64()
        return pa.string() if str(kind) == "string_view" else kind

    schema = pa.schema([field.with_type(plain(field.type)) for field in table.schema])
    return stripped(table if schema.equals(table.schema) else table.cast(schema))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers, including booleans."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_typed(table: pa.Table) -> bool:
    """Whether a node table has a text column ``type``; a numeric one is a feature."""
    return TYPE in table.column_names and is_text(column(table, TYPE).type)


def wrong_value(values: pa.Array, row: int, name: str, rule: str, *, before: int = 0) -> DataError:
    """Return the error of a value that breaks the rule of its column."""
    return DataError(
        f"row {before + row + 1} has {values[row].as_py()!r} in column {name!r}: expected {rule}"
    )


def first_refused(values: pa.Array, reads: Callable[[pa.Array], Any]) -> int:
    """Return the index of the first value that ``reads`` refuses by returning None; one is.

    It is found by halving, since many values are read at once much faster than one by one.
    """
    low, high = 0, len(values)  # all before low are read, one before high is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reads(values[low:middle]) is not None else (low, middle)
    return low


def accepted(
    values: pa.Array,
    reads: Callable[[pa.Array], pa.Array | None],
    name: str,
    rule: str,
    *,
    before: int = 0,
) -> pa.Array:
    """Return what ``reads`` makes of values; raise the error of the first value that it refuses."""
    read_values = reads(values)
    if read_values is None:
        raise wrong_value(values, first_refused(values, reads), name, rule, before=before)
    return read_values


def cast_or_none(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return texts cast to a type, or None if one of them cannot be."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def check_filled(values: pa.Array, name: str, *, before: int = 0) -> None:
    """Raise if a row has no value."""
    full = values.is_valid()
    if is_text(values.type):
        full = pc.and_(full, pc.not_equal(pc.binary_length(values).fill_null(0), 0))
    row = pc.index(full, False).as_py()
    if row >= 0:
        raise DataError(f"row {before + row + 1} has no value in column {name!r}: expected one")


def ids(
    table: pa.Table, name: str, *, before: int = 0, expected: str = "strings or integers"
) -> pa.Array:
    """Return a column of ids, int64 if they are integers, else strings.  [rows]

    Only Python and JSON have both in a column, see ``mixed``.
    """
    values = column(table, name)
    if pa.types.is_union(values.type):
        rows = values.to_pylist()
        if None in rows:
            raise DataError(f"row {rows.index(None) + 1} has no value in column {name!r}")
        return values
    numbers = pa.types.is_integer(values.type)
    if pa.types.is_null(values.type):
        check_filled(values, name, before=before)
    if not numbers and not is_text(values.type) and len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected {expected}")
    check_filled(values, name, before=before)
    return values.cast(pa.int64() if numbers else pa.string())


def filled_texts(table: pa.Table, name: str, *, before: int = 0) -> pa.Array:
    """Return a text column without missing values; integers are converted to text."""
    return ids(table, name, before=before, expected="texts").cast(pa.string())


def full_numbers(
    table: pa.Table, name: str, *, before: int = 0, what: str = "column", why: str = ""
) -> tuple[pa.Array, NDArray[Any]]:
    """Return a column of numbers without missing values, as it is and as an array.  [rows]

    what, why: the kind of the column, and why it must hold numbers, for the message.
    """
    values = column(table, name)
    if not is_number(values.type) and len(values):
        raise DataError(f"{what} {name!r} holds {values.type}: expected numbers{why}")
    check_filled(values, name, before=before)
    return values, values.to_numpy(zero_copy_only=False)


def features(table: pa.Table, names: list[str], *, before: int = 0, most: float = np.inf) -> Tensor:
    """Return numeric columns side by side, all finite.  float32 [rows, names]

    most: the largest absolute value allowed.
    """
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32)
    rule = "a finite number" if most == np.inf else f"a finite number of at most {most:g}"
    why = ", since all columns but id, label and time are features"
    for place, name in enumerate(names):
        values, numbers = full_numbers(table, name, before=before, what="feature column", why=why)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, refused below
            matrix[:, place] = numbers
        wrong = ~(np.abs(matrix[:, place]) <= min(most, np.finfo(np.float32).max))
        if wrong.any():
            raise wrong_value(values, int(wrong.argmax()), name, rule, before=before)
    return torch.from_numpy(matrix)


def edge_weights(table: pa.Table, *, before: int = 0) -> Tensor | None:
    """Return the column ``weight`` of an edge table, or None if it is missing.  float32 [rows]"""
    if WEIGHT not in table.column_names:
        return None
    given = column(table, WEIGHT)
    if is_text(given.type):  # of a CSV, some of whose weights are no numbers: names the first
        accepted(given, partial(cast_or_none, kind=pa.float64()), WEIGHT, "a number", before=before)
    values, numbers = full_numbers(table, WEIGHT, before=before)
    weights = torch.from_numpy(numbers.astype(np.float64))
    wrong = unsound_weights(weights)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        raise wrong_value(values, row, WEIGHT, WEIGHT_RULE, before=before)
    return weights.float()


def as_integers(
    values: pa.Array, name: str, *, before: int = 0, rows: NDArray[Any] | None = None
) -> pa.Array:
    """Return numbers as int64; 3.0 is accepted, since pandas writes it beside gaps.

    rows: row of each value, if they are not consecutive.
    """
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
        before = before if rows is None else int(rows[row]) - row
        raise wrong_value(values, row, name, "a whole number of 64 bits", before=before) from None


def as_whole(values: pa.Array, name: str) -> pa.Array:
    """Return ids written as text in a CSV as integers.  -> int64 [rows]"""
    rule = "an integer of 64 bits, since --integers was given"
    return accepted(values, partial(cast_or_none, kind=pa.int64()), name, rule)


def parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return texts parsed as ``kind`` by the CSV reader, or None if one of them is not."""
    rows = ('"' + text.replace('"', '""') + '"' for text in ("column", *texts.to_pylist()))
    options = csv.ParseOptions(newlines_in_values=True)
    convert = csv.ConvertOptions(column_types={"column": kind}, null_values=[])
    source = pa.BufferReader(("\n".join(rows) + "\n").encode())
    try:
        table = csv.read_csv(source, parse_options=options, convert_options=convert)
    except pa.ArrowInvalid:
        return None
    return column(table, "column")


def times(table: pa.Table, *, before: int = 0) -> tuple[Tensor, bool]:
    """Return the times of nodes, and whether they were written as dates.  int64 [rows]

    A date or timestamp becomes seconds since 1970-01-01 in UTC, with fractions cut off. One without
    a time zone is in UTC.

    >>> import pyarrow as pa
    >>> times(pa.table({"time": ["1970-01-02", "1970-01-01T00:00:07.9"]}))
    (tensor([86400,     7]), True)
    >>> times(pa.table({"time": [2019, 2020]}))
    (tensor([2019, 2020]), False)
    """
    values = column(table, "time")
    check_filled(values, "time", before=before)
    rows: NDArray[Any] | None = None
    indices: Any = slice(None)
    if is_text(values.type):
        encoded = values.dictionary_encode()
        indices = encoded.indices.to_numpy()
        rows = before + np.unique(indices, return_index=True)[1]  # first row of each text
        values = _times_in(encoded.dictionary, rows)
    kind, seconds = values.type, np.empty(0, np.int64)
    dates = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if pa.types.is_date(kind):
        seconds = values.cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.int64) * 86_400
    elif dates:
        ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        seconds = values.cast(pa.int64()).to_numpy() // ticks
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        seconds = as_integers(values, "time", before=before, rows=rows).to_numpy()
    elif len(values):
        raise DataError(f"column 'time' holds {kind}: expected {EXPECTED}")
    return torch.from_numpy(np.array(seconds[indices], np.int64)), dates


def _times_in(texts: pa.Array, rows: NDArray[Any]) -> pa.Array:
    """Return times as the first kind that fits all of them.  rows: row of each text"""
    kinds = [pa.int64(), pa.float64()]
    kinds += [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    for kind in kinds:
        if (read_texts := parsed(texts, kind)) is not None:
            return read_texts
    # Report the first text that breaks the kind which fits the longest prefix of the column.
    wrong = max(first_refused(texts, partial(parsed, kind=kind)) for kind in kinds)
    like = " like those before it" if wrong else ""
    before = int(rows[wrong]) - wrong
    raise wrong_value(texts, wrong, "time", f"{EXPECTED}{like}", before=before)


def column_peaks(features: Tensor) -> Tensor:
    """Return the largest absolute value of each column, in one pass.  [n, d] -> float32 [d]

    >>> column_peaks(torch.tensor([[1.0, -5.0], [2.0, 0.0]]))
    tensor([2., 5.])
    """
    peaks = torch.zeros(features.shape[1])
    if features.layout == torch.sparse_csr:
        columns, values = features.col_indices().long(), features.values().abs().float()
        return peaks.scatter_reduce_(0, columns, values, "amax")
    rows = max(_VALUES_PER_BLOCK // max(features.shape[1], 1), 1)
    for start in range(0, len(features), rows):
        block = features[start : start + rows].float()
        # Two passes over a block in cache, without the copy that abs() would make.
        torch.maximum(peaks, torch.maximum(block.amax(0), -block.amin(0)), out=peaks)
    return peaks


def dominant_column(peaks: Tensor, names: Sequence[str] | None = None) -> str | None:
    """Return a warning if a column is ``DOMINANT`` times as large as the median one, else None.

    Columns of zeros are left out. names: names of the columns; numbers from 0 by default.

    >>> dominant_column(torch.tensor([1.0, 2.0, 3e6]), ["age", "ratio", "income"])
    "feature column 'income' reaches 3e+06, 1,500,000 times what the median column reaches (2): it \
drowns the others, so standardise the features"
    >>> dominant_column(torch.tensor([1.0, 2.0, 300.0]))
    """
    filled = peaks[peaks > 0]
    if len(filled) < 2:
        return None
    median, place = float(filled.median()), int(peaks.argmax())
    times = float(peaks[place]) / median
    if times < DOMINANT:
        return None
    name = f"{place} (counted from 0)" if names is None else repr(names[place])
    others = int((peaks >= DOMINANT * median).sum()) - 1
    more = f" (and so {'does' if others == 1 else 'do'} {others} more)" if others else ""
    return (
        f"feature column {name} reaches {float(peaks[place]):g}, {times:,.0f} times what the "
        f"median column reaches ({median:g}){more}: it drowns the others, so standardise the "
        "features"
    )


def say_dominant_column(where: object, peaks: Tensor, names: Sequence[str] | None = None) -> None:
    """Log the warning of ``dominant_column``, if there is one."""
    if (sentence := dominant_column(peaks, names)) is not None:
        say(where, sentence)
