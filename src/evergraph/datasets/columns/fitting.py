"""From the first table to the scheme by which all are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.notices import say
from evergraph.datasets.columns.block import ColumnEncoder, LeftOut
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.guessing import (
    LEAKS,
    SEPARATORS,
    guess,
    is_called_id,
    leaked_share,
    looks_like_id,
    misread,
    usual_separator,
)
from evergraph.datasets.columns.hashed import CategoryEncoder, ListEncoder
from evergraph.datasets.columns.measured import BooleanEncoder, DateEncoder, NumberEncoder
from evergraph.datasets.columns.own import Encoder, OwnEncoder, is_encoder, registered
from evergraph.datasets.columns.scheme import Column, Scheme
from evergraph.datasets.columns.words import TextEncoder
from evergraph.datasets.files.table_columns import column, is_number, is_text

if TYPE_CHECKING:
    import pyarrow

SAMPLE = 10_000  # first rows, which a table of any size is judged by
_ROWS = 1_000  # looked at together
_AS_NAMES = {"category": "read as a category", "text": "read as text", "id": "left out as an id"}
_MOST_WATCHED = 64  # plain columns that are looked at for ids and leaks


def is_plain(table: pyarrow.Table, names: list[str], choices: Columns) -> bool:
    """Whether a table is all numbers without gaps, which are features as they are.

    Gaps that are refused do not make it another: they are refused there.

    >>> import pyarrow as pa
    >>> is_plain(pa.table({"f": [1, 2]}), ["f"], Columns())
    True
    >>> is_plain(pa.table({"f": [1, None]}), ["f"], Columns())
    False
    """
    choices.check_names(names)
    if choices.kinds:
        return False
    columns = [column(table.slice(0, SAMPLE), name) for name in names]
    if not all(is_number(values.type) for values in columns):
        return not table.num_rows  # nothing to judge by
    return choices.gaps == "refuse" or not any(_has_gaps(values) for values in columns)


def _has_gaps(values: pyarrow.Array) -> bool:
    import pyarrow.compute as pc

    return bool(values.null_count) or bool(
        values.type in _floating() and pc.any(pc.is_nan(values)).as_py()
    )


def _floating() -> tuple[Any, ...]:
    import pyarrow as pa

    return pa.float16(), pa.float32(), pa.float64()


def fit_scheme(
    table: pyarrow.Table,
    names: list[str],
    choices: Columns | None = None,
    *,
    typed: bool = True,
    labels: pyarrow.Array | None = None,
    where: object = "table",
) -> Scheme:
    """Return how columns are read, fitted on the first ``SAMPLE`` rows of a table.

    Where new categories are to be refused, it is fitted on all rows.

    Args:
        table: the first one.
        names: of the columns that are features.
        choices: what is not to be guessed.
        typed: whether columns have kinds of their own, as in Parquet, or are texts of a CSV.
        labels: of the rows, to warn of a column that gives them away.
        where: the table is from, for what is said.

    >>> import pyarrow as pa
    >>> table = pa.table({"age": [30, None, 50], "born": ["1990-05-01", "1985-01-31", None]})
    >>> for row in fit_scheme(table, ["age", "born"]).table(): print(row)
    ('age', 'number', '(x - 40) / 10, cut at 5, and a flag for gaps', '2', '1')
    ('born', 'date', 'time around 1987-09-16 in 958 days, year and week, a flag for gaps', '6', '1')
    """
    chosen = choices or Columns()
    chosen.check_names(names)
    first = table if chosen.strict else table.slice(0, SAMPLE)
    columns = []
    for name in names:
        values = column(first, name)
        named = chosen.kinds.get(name, _said(table, name))
        encoder = _fitted(values, name, named, chosen, typed, where)
        columns.append(Column(name, encoder, _gaps(encoder, values, name)))
        if encoder.width and labels is not None:
            say_leak(where, name, values, labels[: first.num_rows])
    return Scheme(tuple(columns), chosen.strict, chosen.gaps == "refuse")


def _gaps(encoder: ColumnEncoder, values: pyarrow.Array, name: str) -> int:
    """Return how many values are missing, a few rows at a time: features take more than texts."""
    starts = range(0, len(values), _ROWS)
    return sum(int(encoder.encode(values[at : at + _ROWS], name).gaps.sum()) for at in starts)


def _said(table: pyarrow.Table, name: str) -> str | None:
    """Return the kind that a table itself gives a column, beyond what its values are."""
    import pyarrow as pa

    coded = pa.types.is_dictionary(table.schema.field(name).type)
    return "category" if coded else None  # as pandas' Categorical


def _fitted(
    values: pyarrow.Array,
    name: str,
    named: str | Encoder | None,
    choices: Columns,
    typed: bool,
    where: object,
) -> ColumnEncoder:
    """Return an encoder of the kind that was named, or that is guessed."""
    if named is not None and is_encoder(named):
        encoder = registered(named)
        assert encoder is not None
        return OwnEncoder.fit(values, name, encoder)
    try:
        kind = guess(values, typed=typed) if named is None else str(named)
    except DataError as error:
        raise DataError(f"column {name!r} {error}") from None
    if named is None and kind in _AS_NAMES and (like := misread(values)):
        say(where, f"column {name!r} looks like {like[0]}, but is {_AS_NAMES[kind]}: {like[1]}")
        return LeftOut("looks like an id") if kind == "id" else _make(kind, values, name, choices)
    if named is None and (kind == "id" or (kind == "number" and _numbers_rows(values, name))):
        say(
            where,
            f"column {name!r} looks like an id, nearly every row has another: it is left "
            "out, unless its kind is named",
        )
        return LeftOut("looks like an id")
    return _make(kind, values, name, choices)


def _numbers_rows(values: pyarrow.Array, name: str) -> bool:
    import pyarrow as pa

    from evergraph.datasets.columns.values import numbers

    return looks_like_id(pa.array(numbers(values, name), from_pandas=True), name)


def _make(kind: str, values: pyarrow.Array, name: str, choices: Columns) -> ColumnEncoder:
    if kind == "text":
        return TextEncoder.fit(values, name, dims=choices.text_width)
    if kind == "list":
        found = usual_separator(values) if is_text(values.type) else SEPARATORS[0]
        return ListEncoder.fit(values, name, separator=found)
    if kind in ("empty", "skip"):
        return LeftOut("as asked" if kind == "skip" else "the first rows have no value")
    encoders = (NumberEncoder, BooleanEncoder, DateEncoder, CategoryEncoder)
    made: ColumnEncoder = {cls.kind: cls for cls in encoders}[kind].fit(values, name)
    return made


def say_leak(where: object, name: str, values: pyarrow.Array, labels: pyarrow.Array) -> None:
    """Say that a column nearly determines the label, if it does."""
    share = leaked_share(values, labels)
    if share >= LEAKS:
        say(
            where,
            f"column {name!r} alone tells the label of {share:.0%} of the labelled rows: "
            "leave it out if it is not known before the label",
        )


def say_suspicious(where: object, table: pyarrow.Table, names: list[str], labels: Any) -> None:
    """Say which columns of plain numbers look like ids or leaked labels; all of them are used."""
    import pyarrow as pa

    for name in names if len(names) <= _MOST_WATCHED else ():
        values = column(table.slice(0, SAMPLE), name)
        if is_called_id(name) and looks_like_id(values, name):
            say(
                where,
                f"column {name!r} looks like an id, nearly every row has another: it is "
                "used as a number, so leave it out of the table if it is one",
            )
        elif labels is not None and not pa.types.is_floating(values.type):
            say_leak(where, name, values, labels[:SAMPLE])
