"""Rows of nodes from any table, as a live learner takes them.

Files, frames, databases, Arrow and JSON all come here, so what a label, a type, a gap or an unused
column means is decided once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.closed_form.own_features import NO_WORDS, PAIRS, WordColumns, packed_words
from evergraph.core.errors import DataError, say_ignored
from evergraph.core.targets import NodeTarget, target_of
from evergraph.online.checking import LARGEST_FEATURE
from evergraph.online.delta import NodeId
from evergraph.tables.arrow import pa, pc
from evergraph.tables.choices import Columns
from evergraph.tables.columns import TYPE, check_filled, column, is_number, is_text
from evergraph.tables.fitting import say_few
from evergraph.tables.frames import table_of_rows
from evergraph.tables.hashed import BUCKETS, TextEncoder
from evergraph.tables.names import check_columns, renamed
from evergraph.tables.nodes import NodeRoles, NodeTable, read_nodes
from evergraph.tables.scheme import NodeFeatures, Scheme
from evergraph.tables.sources import Source

TOMORROW = "later neighbours are not known yet"  # why gaps cannot be filled from neighbours
UNTIMED = "a learner takes nodes in the order of their rows; rename it if it is a feature"


def word_columns(scheme: Scheme | None) -> WordColumns:
    """Return the columns of words that tables with this scheme have."""
    encoders = [] if scheme is None else [each.encoder for each in scheme.columns]
    texts = [isinstance(encoder, TextEncoder) for encoder in encoders if encoder.width]
    return WordColumns(2 * PAIRS, all(texts)) if any(texts) else NO_WORDS


def features_with_words(read: NodeFeatures) -> Tensor:
    """Return the features of a table's rows with the words of their texts.  -> [rows, columns]"""
    if not word_columns(read.scheme).width:
        return read.features
    assert read.scheme is not None
    names = [e.name for e in read.scheme.columns if isinstance(e.encoder, TextEncoder)]
    empty = scipy.sparse.csr_matrix((len(read.features), BUCKETS), dtype="float32")
    by_column = [read.blocks[name].words for name in names]
    words = scipy.sparse.hstack([empty if rows is None else rows for rows in by_column], "csr")
    return torch.cat([read.features, packed_words(words)], dim=1)


def delta_parts(rows: NodeTable) -> dict[str, Any]:
    """Return what a delta has of new nodes."""
    return {
        "nodes": rows.ids.to_pylist(),
        "features": features_with_words(rows.features),
        "words": word_columns(rows.features.scheme),
        "scheme": rows.features.scheme,
        "labels": rows.targets(),
        "types": () if rows.types is None else rows.types.to_pylist(),
    }


def read_rows(
    table: pa.Table,
    columns: Columns | Scheme | None,
    kind: str | None,
    *,
    where: object,
    apart: Sequence[str] = (),
    written: Source | None = None,
    before: int = 0,
) -> NodeTable:
    """Return the rows of a table of nodes for a live learner, whichever way it came in.

    kind: of the learner's targets, None if they are those of the table; where: origin of the table,
    for messages; apart: columns that the caller reads. For the other arguments see ``read_nodes``.
    """
    check_columns(table.column_names, ("id",), lambda: table)
    roles = roles_of(table, columns, apart)
    targets = ["label"] if "label" in table.column_names else roles.targets
    if len(targets) > 1:
        raise DataError(f"has columns {', '.join(targets)}: expected one number to predict")
    for name in targets:
        if kind is not None and name.partition("_")[0] != target_of(kind).column:
            raise DataError(f"has a column {name!r}, but the model was made with targets={kind!r}")
    if not roles.features:
        columns = None
    rows = read_nodes(
        table,
        columns,
        where=where,
        roles=replace(roles, types=False),
        written=written,
        before=before,
        most=LARGEST_FEATURE,
    )
    check_usable(rows.features, columns, where)
    # A stream or a service brings the same columns again and again.
    say_ignored(where, "column", roles.unused, UNTIMED, once=isinstance(where, str))
    if not roles.types:
        return rows
    types = column(table, TYPE).cast(pa.string())
    unknown = pc.equal(types, "")  # an empty cell of a CSV
    return replace(rows, types=pc.if_else(unknown, pa.scalar(None, pa.string()), types))


def read_listed(
    table: pa.Table, columns: Columns | Scheme | None, kind: str, **given: Any
) -> NodeTable:
    """Return rows like ``read_rows``; features may be one column of lists, used as they are."""
    listed = roles_of(table, columns).features == ["features"]
    if not (listed and pa.types.is_nested(table.schema.field("features").type)):
        return read_rows(table, columns, kind, **given)
    rows = read_rows(table.drop_columns("features"), columns, kind, **given)
    return replace(rows, features=NodeFeatures(matrix_of(column(table, "features"))))


def matrix_of(values: pa.Array) -> Tensor:
    """Return lists of numbers, all of one width, as a matrix.  -> float32 [rows, dims]"""
    check_filled(values, "features")
    flat = values.flatten()
    if not len(flat):  # rows without numbers, whose type is not known
        return torch.zeros(len(values), 0)
    if not is_number(flat.type) or flat.null_count:
        raise DataError(f"column 'features' holds {values.type}: expected numbers without gaps")
    widths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) > 1:
        raise DataError(f"features must be rows of one width, not of {widths[0]} and {widths[1]}")
    with np.errstate(over="ignore"):  # too large becomes infinite, which the learner refuses
        numbers = flat.to_numpy(zero_copy_only=False).astype(np.float32)
    return torch.from_numpy(numbers).reshape(len(values), -1)


def table_of_json(
    rows: Sequence[Mapping[str, Any]],
    columns: Columns | Scheme | None,
    kind: str,
    *,
    first: Sequence[str] = (),
) -> pa.Table:
    """Return objects of JSON, with ``label`` whatever the targets are, as a table of nodes.

    first: columns that come first. A column of the scheme that no object has has a gap in each.
    """
    known = [each.name for each in columns.columns] if isinstance(columns, Scheme) else []
    table = table_of_rows(rows, [*known, *first])
    target = target_of(kind).column
    return renamed(table, {"label": target} if "label" in table.column_names else {})


def late_labels(rows: NodeTable) -> list[tuple[NodeId, NodeTarget]]:
    """Return the ids and labels of known nodes; raise if one has none."""
    labels, nodes = rows.targets(), rows.ids.to_pylist()
    if None in labels:
        raise DataError(f"label of node {nodes[labels.index(None)]!r} is missing")
    return [*zip(nodes, labels, strict=True)]


def check_usable(read: NodeFeatures, columns: Columns | Scheme | None, where: object) -> None:
    """Raise if a first table has no usable column, and warn if it has few rows."""
    if isinstance(columns, Columns) and len(read.features):
        columns.check_fill("a learner", TOMORROW)
        if read.scheme is None or not read.scheme.width:
            raise DataError("has no usable column: expected features beside id and label")
        say_few(where, len(read.features), read.scheme)


def roles_of(
    table: pa.Table, columns: Columns | Scheme | None, apart: Sequence[str] = ()
) -> NodeRoles:
    """Return the roles of a table's columns for a learner that reads columns in this way."""
    known = columns.kinds if isinstance(columns, Scheme) else ()
    types = False
    if TYPE in table.column_names and TYPE not in known:
        held = column(table, TYPE).type
        types = is_text(held) or pa.types.is_null(held)
    return NodeRoles.of(table.column_names, types=types, apart=apart, known=known)
