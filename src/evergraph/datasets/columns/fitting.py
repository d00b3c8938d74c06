"""From the first table to the scheme by which all are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergraph.core.errors import DataError
from evergraph.core.notices import say
from evergraph.datasets.columns.block import ColumnEncoder, LeftOut
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.guessing import (
    ENOUGH,
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
from evergraph.datasets.columns.measured import (
    BooleanEncoder,
    DateEncoder,
    NumberEncoder,
    RawEncoder,
)
from evergraph.datasets.columns.own import Encoder, OwnEncoder, is_encoder, registered
from evergraph.datasets.columns.scheme import Column, Scheme
from evergraph.datasets.columns.words import TextEncoder
from evergraph.datasets.files.table_columns import column, is_text

if TYPE_CHECKING:
    import pyarrow

SAMPLE = 10_000  # first rows, which a table of any size is judged by
_ROWS = 1_000  # looked at together
_AS_NAMES = {"category": "read as a category", "text": "read as text", "id": "left out as an id"}
_MOST_WATCHED = 64  # columns of numbers that are looked at for leaks


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

    Where new categories are to be refused, it is fitted on all rows. It keeps the names of all
    columns, by which later tables are matched, and how numbers are scaled.

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
        named = chosen.kind_of(name) or _said(table, name)
        alone = len(names) == 1
        encoder = _fitted(values, name, named, chosen, typed, where, alone=alone)
        columns.append(Column(name, encoder, _gaps(encoder, values, name)))
        many = len(names) > _MOST_WATCHED and isinstance(encoder, NumberEncoder | RawEncoder)
        if encoder.width and labels is not None and not many:
            say_leak(where, name, values, labels[: first.num_rows])
    return Scheme(tuple(columns), chosen.strict, chosen.gaps == "refuse")


def say_few(where: object, rows: int, scheme: Scheme) -> None:
    """Say that a learner's numbers are scaled by few rows, if they are: it stays so."""
    if rows < ENOUGH and any(isinstance(each.encoder, NumberEncoder) for each in scheme.columns):
        many = f"{rows} row{'' if rows == 1 else 's'}"
        say(
            where,
            f"columns of numbers are scaled for good as the first {many} are: begin with {ENOUGH} "
            "or more",
        )


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
    *,
    alone: bool,
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
    if named is None and (
        kind == "id" or (kind == "number" and _numbers_rows(values, name, alone))
    ):
        say(
            where,
            f"column {name!r} looks like an id, nearly every row has another: it is left "
            "out, unless its kind is named",
        )
        return LeftOut("looks like an id")
    return _make(kind, values, name, choices)


def _numbers_rows(values: pyarrow.Array, name: str, alone: bool) -> bool:
    """Whether numbers number the rows; the only column does so only if it is called an id."""
    import pyarrow as pa

    from evergraph.datasets.columns.values import numbers

    if alone and not is_called_id(name):
        return False
    return looks_like_id(pa.array(numbers(values, name), from_pandas=True), name)


def _make(kind: str, values: pyarrow.Array, name: str, choices: Columns) -> ColumnEncoder:
    if kind == "text":
        return TextEncoder.fit(values, name, dims=choices.text_width)
    if kind == "list":
        found = usual_separator(values) if is_text(values.type) else SEPARATORS[0]
        return ListEncoder.fit(values, name, separator=found)
    if kind in ("empty", "skip"):
        return LeftOut("as asked" if kind == "skip" else "the first rows have no value")
    encoders = (NumberEncoder, RawEncoder, BooleanEncoder, DateEncoder, CategoryEncoder)
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
