"""Features from a DataFrame with columns of all kinds, read as the first one was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.fitting import fit_scheme, is_plain
from evergraph.datasets.columns.scheme import Scheme
from evergraph.datasets.doors.recognising import is_a
from evergraph.datasets.files.table_folder import NodeFeatures
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


def read_frame(
    frame: Any, count: int, columns: Columns | Scheme | None, labels: Sequence[Any] = ()
) -> NodeFeatures:
    """Return the features of a table's rows.

    count: how many rows there must be; columns: the scheme of the first table, choices for one
    that is fitted on this one, or None for plain numbers; labels: of the rows, to warn of a column
    that gives them away.
    """
    if isinstance(columns, Columns):
        columns.check_fill("a learner", TOMORROW)
    if columns is None or (isinstance(columns, Columns) and _is_plain(frame, columns)):
        return NodeFeatures(as_features(frame, count), None)
    table = table_of(frame)
    if table.num_rows != count:
        raise DataError(f"features have {table.num_rows} rows: expected {count}, a row a node")
    try:
        scheme = columns if isinstance(columns, Scheme) else _fitted(table, columns, labels)
        read = scheme.read(table)
    except DataError as error:
        raise DataError(f"{WHERE}: {error}") from None
    read.say_new(WHERE)
    scheme.say_unknown(WHERE, table.column_names)
    return NodeFeatures(read.features, scheme.with_gaps(read.gaps))


def _fitted(table: pyarrow.Table, columns: Columns, labels: Sequence[Any]) -> Scheme:
    import pyarrow as pa

    told = pa.array([None if label is None else str(label) for label in labels], pa.string())
    known = told if len(told) == table.num_rows else None
    return fit_scheme(table, table.column_names, columns, labels=known, where=WHERE)


def _is_plain(frame: Any, choices: Columns) -> bool:
    """Whether all columns are numbers without gaps, as they have always been taken in."""
    if choices.kinds:
        return False
    if not is_a(frame, "pandas"):
        table = table_of(frame)
        return is_plain(table, table.column_names, choices)
    if any(getattr(kind, "kind", "") in ("m", "M") for kind in frame.dtypes):
        return False  # NumPy makes numbers of dates, which say nothing
    try:
        matrix = as_features(frame, len(frame))
    except DataError:
        return False
    return choices.gaps == "refuse" or not bool(matrix.isnan().any())


def table_of(frame: Any) -> pyarrow.Table:
    """Return a table of Arrow, its columns named by texts."""
    require("pyarrow", extra="tables", why="reading a DataFrame of columns that are no numbers")
    import pyarrow as pa

    if is_a(frame, "pyarrow"):
        return pa.table(frame)
    if is_a(frame, "polars"):
        return frame.to_arrow()
    names = [str(name) for name in frame.columns]
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
