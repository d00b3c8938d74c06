"""Fitting of the scheme for all tables on the first one, with guesses for unnamed kinds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from evergraph.core.errors import DataError, say
from evergraph.tables import values as read
from evergraph.tables.arrow import pa, pc
from evergraph.tables.choices import Columns, Encoder, OwnEncoder, registered
from evergraph.tables.chunks import read_chunks
from evergraph.tables.columns import column, is_number, is_text
from evergraph.tables.hashed import SEPARATORS
from evergraph.tables.labels import filled
from evergraph.tables.measured import NumberEncoder, RawEncoder
from evergraph.tables.names import is_called_id
from evergraph.tables.scheme import Column, Scheme
from evergraph.tables.sources import Source
from evergraph.tables.values import ColumnEncoder, LeftOut, column_kinds

MAX_CATEGORIES = 1_000  # most distinct texts of a category, in the first rows
MAX_NAME_LENGTH = 40  # most characters of an id or a category, on average
MIN_ROWS = 30  # fewest rows for any suspicion
NEARLY_ALL = 0.95  # of all rows
LEAKED_SHARE = 0.98  # of labelled rows
SAMPLE = 10_000  # first rows on which a table of any size is judged
_ROWS_PER_BLOCK = 1_000  # encoded at once
_READ_AGAIN = 1 << 20  # bytes of a CSV whose numbers are looked at as they are written
_MOST_WATCHED = 64  # numeric columns checked for leaks
_AS_NAMES = {"category": "read as a category", "text": "read as text", "id": "left out as an id"}
_LEFT_OUT = {"id": "looks like an id", "empty": "the first rows have no value"}
_MISREAD = {  # what texts look like, and how to write them
    r"[-+]?\d*,\d+": ("numbers with a decimal comma, such as", "write 3.5, or give --decimal ,"),
    r"[$€£]\s?\d[\d.,' ]*|\d[\d.,' ]*\s?[%$€£]|\d{1,3}([' ]\d{3})+": (
        "numbers with a sign, such as",
        "write 3500",
    ),
    r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d\d)": ("dates such as", "write them as 2024-12-31"),
}


def guess(values: pa.Array, *, typed: bool) -> str:
    """Return the kind of a column: a name of ``column_kinds``, or ``id``, or ``empty``.

    typed: whether the file has column types; in a CSV, texts that look like numbers are numbers.

    >>> import pyarrow as pa
    >>> guess(pa.array(["1", "", "2.5"]), typed=False), guess(pa.array(["1", "2.5"]), typed=True)
    ('number', 'category')
    >>> guess(pa.array(["red wine and more", "the red cars of old", "old and new"]), typed=True)
    'text'
    >>> guess(pa.array(["a;b", "b", "a;b;c"]), typed=True)
    'list'
    """
    kind = values.type
    if values.null_count == len(values):
        return "empty"
    if pa.types.is_boolean(kind):
        return "boolean"
    if is_number(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_nested(kind):
        return "list"
    if not is_text(kind):
        raise DataError(f"holds {kind}: expected numbers, texts, dates, booleans or lists")
    known = filled(values).drop_null()
    if not len(known):
        return "empty"
    if not typed:
        numeric = _is(read.numbers, known)
        if not numeric and _is(read.booleans, known):
            return "boolean"
        # If more than half are numbers, the others are reported as mistakes.
        first = known[:200]
        single = (first[row : row + 1] for row in range(len(first)))
        if numeric or 2 * sum(_is(read.numbers, one) for one in single) > len(first):
            return "number"
    if _is(read.dates, known):
        return "date"
    listed = known.to_pylist()
    if _are_lists(listed):
        return "list"
    # Categories, ids and texts differ by length, words and repetition.
    distinct, rows = len(set(listed)), len(listed)
    words = sum(len(text.split()) for text in listed) / rows
    short = sum(map(len, listed)) <= MAX_NAME_LENGTH * rows
    if short and words < 1.5 and rows >= MIN_ROWS and distinct >= NEARLY_ALL * rows:
        return "id"
    few = distinct <= MAX_CATEGORIES and (2 * distinct <= rows or rows < MIN_ROWS)
    return "category" if short and ((few and words < 3) or words < 1.5) else "text"


def _is(reads: Callable[..., Any], known: pa.Array) -> bool:
    try:
        reads(known, "")
    except DataError:
        return False
    return True


def _are_lists(found: list[str]) -> bool:
    """Whether a quarter of texts have a separator, between items that are short and repeat."""
    for separator in SEPARATORS:
        split = [text.split(separator) for text in found]
        items = [item.strip() for row in split for item in row]
        many = 4 * sum(len(row) > 1 for row in split) >= len(found)
        short = (
            sum(map(len, items)) <= MAX_NAME_LENGTH * len(items)
            and max(map(len, items)) <= 2 * MAX_NAME_LENGTH
        )
        if many and short and len(set(items)) < len(items):
            return True
    return all(text.startswith("[") and text.endswith("]") for text in found)


def misread(values: pa.Array) -> tuple[str, str] | None:
    """Return what misread texts look like and how to write them, or None if they are names.

    >>> import pyarrow as pa
    >>> misread(pa.array(["3,5", "4,25", None]))
    ("numbers with a decimal comma, such as '3,5'", 'write 3.5, or give --decimal ,')
    >>> misread(pa.array(["12/31/2024"]))
    ("dates such as '12/31/2024'", 'write them as 2024-12-31')
    >>> misread(pa.array(["red", "3,5"]))
    """
    distinct = filled(values).drop_null().unique().to_pylist() if is_text(values.type) else []
    for pattern, (what, remedy) in _MISREAD.items():
        alike = [text for text in distinct if re.fullmatch(pattern, text)]
        if 2 * len(alike) > len(distinct):
            return f"{what} {alike[0]!r}", remedy
    return None


def looks_like_id(values: pa.Array, name: str) -> bool:
    """Whether integers merely number the rows.

    They do if nearly all differ and they are consecutive or the column is named like an id.

    >>> import pyarrow as pa
    >>> looks_like_id(pa.array(range(100, 130)), "f"), looks_like_id(pa.array([7, 8]), "f")
    (True, False)
    """
    numbers = values.drop_null().to_numpy(zero_copy_only=False)
    if len(numbers) < MIN_ROWS or numbers.dtype.kind not in "iuf" or bool((numbers % 1 != 0).any()):
        return False
    if len(np.unique(numbers)) < NEARLY_ALL * len(numbers):
        return False
    runs_on = bool((np.diff(numbers) > 0).all() and np.ptp(numbers) < 2 * len(numbers))
    return runs_on or is_called_id(name)


def leaked_share(values: pa.Array, labels: pa.Array) -> float:
    """Return the share of labelled rows whose label follows from the value; 0 if not meaningful.

    It is not meaningful if the values are nearly all different, or the labels nearly all the same.

    >>> import pyarrow as pa
    >>> leaked_share(pa.array(["p", "q"] * 20), pa.array(["x", "y"] * 20))
    1.0
    """
    if pa.types.is_nested(values.type):
        return 0.0
    both = pc.and_(values.is_valid(), labels.is_valid())
    encoded, known = (each.filter(both).dictionary_encode() for each in (values, labels))
    rows, kinds = len(encoded), len(known.dictionary)
    if rows < MIN_ROWS or 5 * len(encoded.dictionary) > rows:
        return 0.0
    value, label = (each.indices.to_numpy().astype(np.int64) for each in (encoded, known))
    if 10 * np.bincount(label).max() > 9 * rows:
        return 0.0
    pairs, counts = np.unique(value * kinds + label, return_counts=True)
    first = np.unique(pairs // kinds, return_index=True)[1]  # of the pairs with each value
    return float(np.maximum.reduceat(counts, first).sum() / rows)


def fit_scheme(
    table: pa.Table,
    names: list[str],
    choices: Columns | None = None,
    *,
    typed: bool = True,
    labels: pa.Array | None = None,
    where: object = "table",
) -> Scheme:
    """Return the scheme for reading columns, fitted on the first ``SAMPLE`` rows of a table.

    With strict categories it is fitted on all rows. The scheme keeps the names of all columns, by
    which later tables are matched, and the scaling of numbers.

    Args:
        table: the first table.
        names: the feature columns.
        choices: kinds that are not guessed.
        typed: whether columns have types, as in Parquet, or are texts of a CSV.
        labels: labels of the rows, to warn about a column that reveals them.
        where: origin of the table, for messages.

    >>> import pyarrow as pa
    >>> table = pa.table({"age": [30, None, 50], "born": ["1990-05-01", "1985-01-31", None]})
    >>> for row in fit_scheme(table, ["age", "born"]).table(): print(row)
    ('age', 'number', '(x - 40) / 10, clipped at 5, and a flag for gaps', '2', '1')
    ('born', 'date', 'time around 1987-09-16 in 958 days, year and week, a flag for gaps', '6', '1')
    """
    chosen = choices or Columns()
    chosen.check_names(names)
    first = table if chosen.strict else table.slice(0, SAMPLE)
    columns = []
    for name in names:
        values = column(first, name)
        named = chosen.kind_of(name)
        if named is None and pa.types.is_dictionary(table.schema.field(name).type):
            named = "category"  # as pandas' Categorical
        encoder = _fitted(values, name, named, chosen, typed, where, alone=len(names) == 1)
        # Gaps are counted in chunks, since features need more memory than values.
        parts = (values[at : at + _ROWS_PER_BLOCK] for at in range(0, len(values), _ROWS_PER_BLOCK))
        gaps = sum(int(encoder.encode(part, name).gaps.sum()) for part in parts)
        columns.append(Column(name, encoder, gaps))
        many = len(names) > _MOST_WATCHED and isinstance(encoder, NumberEncoder | RawEncoder)
        if encoder.width and labels is not None and not many:
            share = leaked_share(values, labels[: first.num_rows])
            if share >= LEAKED_SHARE:
                say(
                    where,
                    f"column {name!r} alone determines the label of {share:.0%} of the labelled "
                    "rows: leave it out if it is not known before the label",
                )
    return Scheme(tuple(columns), chosen.strict, chosen.gaps == "refuse")


def say_zeros(where: object, written: Source, scheme: Scheme, choices: Columns) -> None:
    """Report columns of a CSV that are read as numbers though some have zeros in front.

    written: the CSV, of which the first rows are read again as texts; choices: kinds that the user
    has named.
    """
    kinds = scheme.kinds.items()
    names = [name for name, kind in kinds if kind == "number" and choices.kind_of(name) is None]
    if names:
        first = next(read_chunks(written, (), size=_READ_AGAIN, text=names)).table
        for name in names:
            values = column(first, name)
            with_zeros = values.filter(pc.match_substring_regex(values, r"^\s*[-+]?0\d+\s*$"))
            if len(with_zeros):
                say(
                    where,
                    f"column {name!r} is read as numbers, so {with_zeros[0].as_py()!r} loses its zeros: "
                    f"if these are codes, give --column {name}=category",
                )


def say_few(where: object, rows: int, scheme: Scheme) -> None:
    """Warn if a learner's numbers are scaled by few rows, since the scaling is permanent."""
    if rows < MIN_ROWS and any(isinstance(each.encoder, NumberEncoder) for each in scheme.columns):
        many = f"{rows} row{'' if rows == 1 else 's'}"
        say(
            where,
            f"numeric columns are scaled permanently by the first {many}: start with {MIN_ROWS} "
            "or more",
        )


def _fitted(
    values: pa.Array,
    name: str,
    named: str | Encoder | None,
    choices: Columns,
    typed: bool,
    where: object,
    *,
    alone: bool,
) -> ColumnEncoder:
    """Return an encoder of the named or guessed kind; alone: whether it is the only column."""
    if named is not None and (own := registered(named)) is not None:
        return OwnEncoder.fitted(values, name, own)
    try:
        kind = guess(values, typed=typed) if named is None else str(named)
    except DataError as error:
        raise DataError(f"column {name!r} {error}") from None
    if named is None and kind in _AS_NAMES and (like := misread(values)):
        say(where, f"column {name!r} looks like {like[0]}, but is {_AS_NAMES[kind]}: {like[1]}")
    else:
        # Numbers may merely number the rows; an only column must also be named like an id.
        numbers = named is None and kind == "number" and (not alone or is_called_id(name))
        if numbers and looks_like_id(pa.array(read.numbers(values, name), from_pandas=True), name):
            kind = "id"
        if kind == "id":
            say(
                where,
                f"column {name!r} looks like an id, since nearly every row has another value: it "
                "is left out unless its kind is named",
            )
    if kind in _LEFT_OUT:
        return LeftOut(_LEFT_OUT[kind])
    return column_kinds.resolve(kind).fit(values, name, choices)
