"""Features from named columns, with the names and scales of the first table.

Data frames, Arrow tables and rows of JSON are all read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.core.errors import DataError
from evergraph.online.checking import LARGEST_FEATURE
from evergraph.online.codecs.tables import TOMORROW
from evergraph.online.conversion import as_features
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.fitting import say_few
from evergraph.tables.frames import arrow_table, is_a
from evergraph.tables.nodes import read_features, say_by_position, say_index
from evergraph.tables.scheme import NodeFeatures, Scheme

WHERE = "features"  # prefix of messages


def is_numbered(frame: Any) -> bool:
    """Whether a frame is a plain array of numbers, with pandas' default columns 0, 1, 2, ..."""
    if not is_a(frame, "pandas") or [*frame.columns] != [*range(len(frame.columns))]:
        return False
    if any(getattr(kind, "kind", "") in ("m", "M") for kind in frame.dtypes):
        return False  # NumPy would turn dates into meaningless numbers
    try:
        return not bool(as_features(frame, len(frame)).isnan().any())
    except DataError:
        return False


def read_frame(
    frame: Any,
    count: int,
    columns: Columns | Scheme | None,
    labels: Sequence[Any] = (),
    *,
    noted: bool = False,
) -> NodeFeatures:
    """Return the features of a table's rows.

    count: expected number of rows; columns: the scheme of the first table, choices to fit one on
    this table, or None for numbers without names; labels: of the rows, to warn of a column that
    gives them away; noted: whether the notice that names are ignored was given before.
    """
    if isinstance(columns, Columns):
        columns.check_fill("a learner", TOMORROW)
    if columns is None and is_a(frame, "pandas"):  # needs no Arrow
        if not noted and not is_numbered(frame):
            say_by_position(WHERE, [str(name) for name in frame.columns])
        return NodeFeatures(as_features(frame, count))
    try:
        table = arrow_table(frame)
    except DataError as error:
        raise DataError(f"{WHERE}: {error}") from None
    if table.num_rows != count:
        raise DataError(f"features have {table.num_rows} rows: expected {count}, one per node")
    return read_columns(table, columns, labels, noted=noted)


def read_columns(
    table: pa.Table,
    columns: Columns | Scheme | None,
    labels: Sequence[Any] = (),
    *,
    noted: bool = False,
    where: str = WHERE,
) -> NodeFeatures:
    """Return the features of named columns; see ``read_frame``."""
    known = pa.array([None if label is None else str(label) for label in labels], pa.string())
    say_index(where, table.column_names)
    try:
        read = read_features(
            table,
            columns,
            where=where,
            labels=known if len(known) == table.num_rows else None,
            most=LARGEST_FEATURE,
            position_said=noted,
        )
        if isinstance(columns, Columns) and not (read.scheme and read.scheme.width):
            raise DataError("have no usable column: expected features beside id and label")
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if isinstance(columns, Columns) and read.scheme is not None:
        say_few(where, table.num_rows, read.scheme)
    return read
