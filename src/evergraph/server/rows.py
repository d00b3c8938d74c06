"""Nodes as objects with columns by name, read by the learner's own scheme."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import installed
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.fitting import fit_scheme
from evergraph.datasets.columns.scheme import Scheme
from evergraph.datasets.files.table_folder import RESERVED
from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    import pyarrow

    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder

WHERE = "rows"


def with_rows(
    delta: Delta, rows: Sequence[Mapping[str, Any]], folder: LearnerFolder
) -> tuple[Delta, Scheme]:
    """Return a delta whose nodes are those of the rows, and how their columns were read.

    rows: each with ``id``, ``label`` where it is known, and columns; the first ones that a learner
    is sent decide how columns are read.
    """
    if len(delta.nodes) or len(delta.features):
        raise RefusedError(422, "a body must have nodes with features or rows, not both")
    if not installed("pyarrow"):
        raise RefusedError(422, "this service reads no rows: pyarrow is not installed")
    for place, row in enumerate(rows):
        if row.get("id") is None:
            raise DataError(f"{WHERE}: row {place + 1} has no 'id'")
    table = _table(rows)
    try:
        scheme = _scheme(table, rows, folder)
        read = scheme.read(table)
    except DataError as error:
        raise DataError(f"{WHERE}: {error}") from None
    read.say_new(WHERE)
    scheme.say_unknown(WHERE, table.column_names)
    nodes = tuple(row["id"] for row in rows)
    labels = tuple(row.get("label") for row in rows)
    return replace(delta, nodes=nodes, features=read.features, labels=labels), scheme


def _scheme(
    table: pyarrow.Table, rows: Sequence[Mapping[str, Any]], folder: LearnerFolder
) -> Scheme:
    import pyarrow as pa

    if folder.learner.status().features:
        known = folder.columns
        if known is None:
            raise DataError("the learner began with plain numbers: send nodes and features")
        return known
    labels = [None if (label := row.get("label")) is None else str(label) for row in rows]
    scheme = fit_scheme(
        table, table.column_names, Columns(), labels=pa.array(labels, pa.string()), where=WHERE
    )
    if not scheme.width:
        raise DataError("have no column that can be used: expected features beside id and label")
    return scheme


def _table(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Return the columns of rows; where a row has no such name, it has a gap."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row if name not in RESERVED)
    arrays = [_array([row.get(name) for row in rows]) for name in names]
    empty = pa.table({"": pa.nulls(len(rows))}).select([])  # knows its length all the same
    return pa.Table.from_arrays(arrays, list(names)) if names else empty


def _array(values: list[Any]) -> pyarrow.Array:
    """Return values of one kind as they are, values of several as texts."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values])
