"""Named columns of rows and Arrow tables, encoded by the learner's scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import installed
from evergraph.online.frames import read_columns
from evergraph.server.http import RefusedError
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.frames import table_of_rows
from evergraph.tables.labels import one_label, say_unlabelled
from evergraph.tables.nodes import RESERVED
from evergraph.tables.scheme import Scheme

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.arrow import ArrowBody

WHERE, ARROW = "rows", "Arrow"


def with_rows(
    delta: Delta, rows: Sequence[Mapping[str, Any]], folder: LearnerFolder
) -> tuple[Delta, Scheme]:
    """Return a delta whose nodes are the rows, and the scheme by which they were encoded.

    rows: each with ``id``, optionally ``label``, and columns; the first rows that a learner
    receives decide how columns are read.
    """
    if len(delta.nodes) or len(delta.features):
        raise RefusedError(422, "a body must have nodes with features or rows, not both")
    if not installed("pyarrow"):
        raise RefusedError(422, "rows cannot be read: pyarrow is not installed in this service")
    for number, row in enumerate(rows, start=1):
        if row.get("id") is None:
            raise DataError(f"{WHERE}: row {number} has no 'id'")
    rows = [{name.strip(): value for name, value in row.items()} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row if name not in RESERVED)
    table = table_of_rows(rows, names, as_texts=True)
    columns = _columns(folder)
    if columns is None:
        raise DataError(f"{WHERE}: the learner began with plain numbers: send nodes and features")
    labels = _labels([row.get("label") for row in rows], folder)
    if isinstance(columns, Columns) and not any("label" in row for row in rows):
        say_unlabelled(WHERE, table.column_names)
    read = read_columns(table, columns, labels, where=WHERE)
    assert read.scheme is not None
    nodes = tuple(row["id"] for row in rows)
    return replace(delta, nodes=nodes, features=read.features, labels=labels), read.scheme


def with_names(arrow: ArrowBody, folder: LearnerFolder) -> tuple[Delta, Scheme | None]:
    """Return the delta of Arrow tables with labels and named columns as the learner reads them."""
    delta = arrow.delta
    if arrow.read:
        return delta, _sent_scheme(arrow.scheme, delta)
    delta = replace(
        delta,
        labels=_labels(delta.labels, folder),
        late=[(node, _late(node, label, folder)) for node, label in delta.late],
    )
    scheme, columns = None, _columns(folder)
    if isinstance(columns, Columns) and arrow.names and set(delta.labels) <= {None}:
        say_unlabelled(ARROW, arrow.names.get("features", ()))
    for part, names in arrow.names.items():
        if columns is None:
            continue  # the learner began with plain arrays: columns count by position
        table = pa.table(dict(zip(names, getattr(delta, part).T.numpy(), strict=True)))
        read = read_columns(table, columns, delta.labels, where=ARROW)
        scheme = columns = read.scheme
        if part == "features":
            delta = replace(delta, features=read.features)
        else:
            delta = replace(delta, updated_features=read.features)
    return delta, scheme


def _columns(folder: LearnerFolder) -> Scheme | Columns | None:
    """Return the scheme of a learner, ``Columns`` before its first node, None if it has none."""
    return folder.columns if folder.learner.status().features else Columns()


def _labels(labels: Sequence[Any], folder: LearnerFolder) -> tuple[Any, ...]:
    """Return labels of a table, None for those that ``one_label`` reads as missing classes."""
    if folder.learner.head.kind != "class":
        return tuple(labels)
    return tuple(label if isinstance(label, list) else one_label(label) for label in labels)


def _late(node: object, label: Any, folder: LearnerFolder) -> Any:
    (found,) = _labels([label], folder)
    if found is None:
        raise DataError(f"the label of {node!r} is {label!r}, which stands for none: expected one")
    return found


def _sent_scheme(sent: Mapping[str, Any] | None, delta: Delta) -> Scheme | None:
    """Return the scheme that a client sent with the features that it encoded by it."""
    if sent is None or not len(delta.nodes):
        return None
    try:
        scheme = Scheme.from_json(sent)
        if scheme.width != delta.features.shape[1]:
            raise DataError(
                f"columns give {scheme.width} features, and {delta.features.shape[1]} were sent"
            )
        # A row of nulls can be encoded by every sound scheme, so this finds broken ones.
        scheme.encode(pa.table({each.name: pa.nulls(1) for each in scheme.columns}))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedError(422, f"the scheme of the columns is invalid ({error})") from None
    return scheme
