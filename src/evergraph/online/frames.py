"""Named columns of nodes as features: by the names and the scales of the first table.

Whatever comes with names is read here, as a data frame, as an Arrow table or as rows of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.fitting import fit_scheme, say_few
from evergraph.datasets.columns.scheme import Scheme
from evergraph.datasets.doors.recognising import is_a
from evergraph.datasets.files.table_columns import features, stripped
from evergraph.datasets.files.table_folder import (
    NodeFeatures,
    feature_names,
    say_by_position,
    say_index,
)
from evergraph.online.checking import LARGEST_FEATURE
from evergraph.online.codecs.tables import TOMORROW
from evergraph.online.conversion import as_features

if TYPE_CHECKING:
    import pyarrow

WHERE = "features"  # what messages begin with


def is_frame(values: object) -> bool:
    """Whether a value is a table with named columns: of pandas, Polars or Arrow."""
    return type(values).__name__ in ("DataFrame", "Table", "RecordBatch") and any(
        is_a(values, library) for library in ("pandas", "polars", "pyarrow")
    )


def is_numbered(frame: Any) -> bool:
    """Whether a frame is an array of numbers, its columns called 0, 1, 2, ... as pandas does."""
    if not is_a(frame, "pandas") or [*frame.columns] != [*range(len(frame.columns))]:
        return False
    if any(getattr(kind, "kind", "") in ("m", "M") for kind in frame.dtypes):
        return False  # NumPy makes numbers of dates, which say nothing
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
    told: bool = False,
) -> NodeFeatures:
    """Return the features of a table's rows.

    count: how many rows there must be; columns: the scheme of the first table, choices for one
    that is fitted on this one, or None for numbers without names; labels: of the rows, to warn of a
    column that gives them away; told: whether it was said before that names are not looked at.
    """
    if isinstance(columns, Columns):
        columns.check_fill("a learner", TOMORROW)
    if columns is None and is_a(frame, "pandas"):  # needs no Arrow
        if not told and not is_numbered(frame):
            say_by_position(WHERE, [str(name) for name in frame.columns])
        return NodeFeatures(as_features(frame, count), None)
    table = table_of(frame)
    if table.num_rows != count:
        raise DataError(f"features have {table.num_rows} rows: expected {count}, a row a node")
    return read_columns(table, columns, labels, told=told)


def read_columns(
    table: pyarrow.Table,
    columns: Columns | Scheme | None,
    labels: Sequence[Any] = (),
    *,
    told: bool = False,
    where: str = WHERE,
    before: int = 0,
) -> NodeFeatures:
    """Return the features of named columns; see ``read_frame``.

    before: how many rows came before these, for messages.
    """
    names = feature_names(table.column_names)
    say_index(where, table.column_names)
    try:
        if columns is None:
            if not told:
                say_by_position(where, names)
            return NodeFeatures(features(table, names, before=before, most=LARGEST_FEATURE), None)
        scheme = columns
        if isinstance(scheme, Columns):
            scheme = _fitted(table, names, scheme, labels, where)
        scheme.check_names(names)
        read = scheme.read(table, before=before)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    read.say_new(where)
    return NodeFeatures(read.features, scheme.with_gaps(read.gaps))


def _fitted(
    table: pyarrow.Table, names: list[str], columns: Columns, labels: Sequence[Any], where: str
) -> Scheme:
    import pyarrow as pa

    told = pa.array([None if label is None else str(label) for label in labels], pa.string())
    known = told if len(told) == table.num_rows else None
    scheme = fit_scheme(table, names, columns, labels=known, where=where)
    if not scheme.width:
        raise DataError("have no column that can be used: expected features beside id and label")
    say_few(where, table.num_rows, scheme)
    return scheme


def table_of(frame: Any) -> pyarrow.Table:
    """Return a table of Arrow, its columns named by texts."""
    require("pyarrow", extra="tables", why="reading a DataFrame by the names of its columns")
    import pyarrow as pa

    if is_a(frame, "pyarrow"):
        return stripped(pa.table(frame))
    if is_a(frame, "polars"):
        return stripped(frame.to_arrow())
    names = [str(name).strip() for name in frame.columns]
    if len(set(names)) < len(names):
        raise DataError(f"{WHERE}: several columns have one name: expected each of {names} once")
    arrays = [_array(frame.iloc[:, place], name) for place, name in enumerate(names)]
    return pa.Table.from_arrays(arrays, names)


def _array(values: Any, name: str) -> pyarrow.Array:
    import pyarrow as pa

    try:
        found = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = str(error).split("\n")[0]
        raise DataError(f"{WHERE}: column {name!r} holds values of several kinds: {said}") from None
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
