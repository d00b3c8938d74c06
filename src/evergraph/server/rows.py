"""Nodes as objects with columns by name, read by the learner's own scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import installed
from evergraph.online.frames import read_columns
from evergraph.server.http import RefusedError
from evergraph.tables.choices import Columns
from evergraph.tables.frames import table_of_rows
from evergraph.tables.labels import one_label, say_unlabelled
from evergraph.tables.nodes import RESERVED
from evergraph.tables.scheme import Scheme

if TYPE_CHECKING:
    import pyarrow
    from torch import Tensor

    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder

WHERE, ARROW = "rows", "Arrow"


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


def with_names(
    delta: Delta, told: Mapping[str, Any], folder: LearnerFolder
) -> tuple[Delta, Scheme | None]:
    """Return the delta of Arrow tables, read by the learner's names and scales and its labels.

    told: names and more, as ``ReadDelta`` has it.
    """
    if told["read"]:
        return delta, _sent(told["scheme"], delta)
    delta = replace(
        delta,
        labels=_labels(delta.labels, folder),
        late=[(node, _late(node, label, folder)) for node, label in delta.late],
    )
    scheme, columns = None, _columns(folder)
    if isinstance(columns, Columns) and told["names"] and set(delta.labels) <= {None}:
        say_unlabelled(ARROW, told["names"].get("features", ()))
    for part, names in told["names"].items():
        if columns is None:
            continue  # it began with arrays: by position, as it is
        table = _numbers(getattr(delta, part), names)
        read = read_columns(table, columns, delta.labels, where=ARROW)
        scheme = columns = read.scheme
        if part == "features":
            delta = replace(delta, features=read.features)
        else:
            delta = replace(delta, updated_features=read.features)
    return delta, scheme


def _columns(folder: LearnerFolder) -> Scheme | Columns | None:
    """Return how a learner reads columns: by its scheme, yet to be fitted, or not at all."""
    return folder.columns if folder.learner.status().features else Columns()


def _labels(labels: Sequence[Any], folder: LearnerFolder) -> tuple[Any, ...]:
    """Return labels of a table: of classes, what stands for none is none; see ``one_label``."""
    if folder.learner.head.kind != "class":
        return tuple(labels)
    return tuple(label if isinstance(label, list) else one_label(label) for label in labels)


def _late(node: object, label: Any, folder: LearnerFolder) -> Any:
    (found,) = _labels([label], folder)
    if found is None:
        raise DataError(f"the label of {node!r} is {label!r}, which stands for none: expected one")
    return found


def _sent(kept: Mapping[str, Any] | None, delta: Delta) -> Scheme | None:
    """Return the scheme that a client sends beside the features that it made by it."""
    if kept is None or not len(delta.nodes):
        return None
    try:
        scheme = Scheme.from_json(kept)
        if scheme.width != delta.features.shape[1]:
            raise DataError(f"columns become {scheme.width} features, not those that are sent")
        scheme.encode(_nothing(scheme))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedError(
            422, f"columns cannot be read by what is said of them ({error})"
        ) from None
    return scheme


def _nothing(scheme: Scheme) -> pyarrow.Table:
    """Return a row without any value, which every sound scheme reads."""
    import pyarrow as pa

    return pa.table({each.name: pa.nulls(1) for each in scheme.columns})


def _numbers(features: Tensor, names: Sequence[str]) -> pyarrow.Table:
    import pyarrow as pa

    return pa.table(dict(zip(names, features.T.numpy(), strict=True)))
