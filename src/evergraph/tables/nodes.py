"""The reader of node tables from every source.

Columns: ``id`` (string or integer); ``label`` (integer or string), or instead several labels or
numbers to predict (see ``labels`` for both and for spellings of a missing one); optionally ``time``
(integer, date or timestamp) and a text column ``type``, the type of the node. Every other column is
a feature, read by a ``Scheme``, except the nameless index that pandas writes. Blanks around column
names are ignored. Messages count rows from 1, without the header.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, say_ignored, say_once
from evergraph.tables.arrow import pa, pc
from evergraph.tables.choices import Columns
from evergraph.tables.chunks import read_table
from evergraph.tables.columns import (
    TYPE,
    column,
    features,
    filled_texts,
    ids,
    is_number,
    is_typed,
    times,
)
from evergraph.tables.fitting import fit_scheme, say_zeros
from evergraph.tables.labels import (
    LABELS,
    label_lists,
    label_values,
    numbers,
    say_missing,
    say_unlabelled,
    spelled_missing,
    target_names,
)
from evergraph.tables.scheme import NodeFeatures, Scheme
from evergraph.tables.sources import Source

# The names that pandas gives to the nameless index of a data frame.
is_index = re.compile(r"(Unnamed: \d+)?|__index_level_\d+__").fullmatch


@dataclass(frozen=True)
class NodeRoles:
    """The roles of the columns of a node table.

    >>> NodeRoles.of(["id", "size", "type", "target_age"], types=True)
    NodeRoles(targets=['target_age'], types=True, times=False, features=['size'], unused=[])
    """

    targets: list[str]  # columns that take the place of a label
    types: bool  # whether ``type`` is the type of a node
    times: bool  # whether ``time`` is the time of a node
    features: list[str]  # columns that describe a node
    unused: list[str]  # columns that are not read

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        *,
        types: bool,
        apart: Collection[str] = (),
        known: Collection[str] | None = None,
    ) -> NodeRoles:
        """Return the roles of columns.

        apart: columns that the caller reads itself; known: the features of a live learner, which
        takes nodes in the order of their rows: ``time`` is one of these or not read.
        """
        targets = target_names([name for name in names if name not in (known or ())])
        taken = {"id", "label", *targets, *apart, *([TYPE] if types else [])}
        others = [name for name in names if name not in taken and not is_index(name)]
        features = [name for name in others if name != "time"]
        if "time" not in others:
            return cls(targets, types, False, features, [])
        if known is None:
            return cls(targets, types, True, features, [])
        if "time" in known:
            return cls(targets, types, False, others, [])
        return cls(targets, types, False, features, ["time"])


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Rows of a table of nodes."""

    ids: pa.Array  # int64 or strings.  [rows]
    features: NodeFeatures  # the encoded feature columns
    roles: NodeRoles  # roles of the columns
    # text or int64, null if a node has none; None without a column.  [rows]
    labels: pa.Array | None = None
    missing: Mapping[str, int] = field(default_factory=dict)  # number of missing labels by spelling
    # several labels per node, None if they are unknown; None without a column
    lists: list[list[str] | None] | None = None
    # to predict, NaN if unknown; None without a column.  [rows, columns]
    numbers: NDArray[np.float32] | None = None
    types: pa.Array | None = None  # texts; None without a column.  [rows]
    times: Tensor | None = None  # int64; None without a column.  [rows]
    dated: bool = False  # whether times were written as dates

    @property
    def kind(self) -> str:
        """Kind of the targets: classes, several labels, or numbers."""
        if self.lists is not None:
            return "labels"
        return "class" if self.numbers is None else "numbers"

    def targets(self) -> list[Any]:
        """Return the class, labels or number of each node, None if unknown."""
        if self.numbers is not None:
            values = self.numbers[:, 0].tolist()
            return [None if value != value else value for value in values]
        if self.lists is not None:
            return self.lists
        return [None] * len(self.ids) if self.labels is None else self.labels.to_pylist()


def read_nodes(
    table: pa.Table,
    columns: Columns | Scheme | None,
    *,
    where: object,
    roles: NodeRoles | None = None,
    written: Source | None = None,
    before: int = 0,
    piece: bool = False,
    most: float = np.inf,
) -> NodeTable:
    """Return the content of a node table or of a chunk of one.

    Args:
        table: the rows, from a file, a frame or a database.
        columns: the scheme of the first table, the choices for a scheme fitted on this one, or
            None for numbers that are not encoded.
        where: origin of the table, for messages.
        roles: roles of the columns, if the table alone does not show them.
        written: the CSV from which the table was read, if it was: it has no types, so texts may be
            numbers or dates, and it is read again where columns are needed as they are written.
        before: number of rows in earlier chunks.
        piece: whether there are other chunks; the caller then reports new categories and repeated
            ids.
        most: the largest absolute value of a feature.
    """
    roles = roles or NodeRoles.of(table.column_names, types=is_typed(table))
    known = ids(table, "id", before=before)
    if not piece:
        check_distinct(known)
        say_index(where, table.column_names)
    labels, missing, lists, goals = None, {}, None, None
    if roles.targets == [LABELS]:
        lists = label_lists(column(table, LABELS))
    elif roles.targets:
        named = [(column(table, name), name) for name in roles.targets]
        goals = np.stack([numbers(values, name, before=before) for values, name in named], axis=1)
    elif "label" in table.column_names:
        given = column(table, "label")
        labels = label_values(given, guess=written is not None, before=before)
        missing = spelled_missing(given)
    elif isinstance(columns, Columns):
        say_unlabelled(where, roles.features)
    when, dated = times(table, before=before) if roles.times else (None, False)
    known_labels = labels
    if labels is not None and pa.types.is_union(labels.type):
        known_labels = pa.array([v if v is None else str(v) for v in labels.to_pylist()])
    if columns is None and not piece:
        say_by_position(where, roles.features)
    read = read_features(
        table,
        roles.features,
        columns,
        where=where,
        written=written,
        labels=known_labels,
        before=before,
        most=most,
    )
    if not piece:
        read.say_new(where)
        say_missing(where, missing)
    types = filled_texts(table, TYPE, before=before) if roles.types else None
    return NodeTable(known, read, roles, labels, missing, lists, goals, types, when, dated)


def read_features(
    table: pa.Table,
    names: list[str],
    columns: Columns | Scheme | None,
    *,
    where: object,
    written: Source | None = None,
    labels: pa.Array | None = None,
    before: int = 0,
    most: float = np.inf,
) -> NodeFeatures:
    """Return the features of named columns, by a scheme, or as the numbers that they are.

    Without columns or rows there is no scheme. labels: of the rows, null if missing, to warn about
    a column that reveals them; for the other arguments see ``read_nodes``.
    """
    if isinstance(columns, Columns):
        columns.check_names(names)
    if columns is None or not names or not table.num_rows:
        return NodeFeatures(features(table, names, before=before, most=most), None)
    if isinstance(columns, Scheme):
        scheme = columns
    else:
        plain = all(is_number(table.schema.field(name).type) for name in names)
        if written is not None and (columns.reads_texts or not plain):
            table = read_table(written, (), text=names)
        typed = written is None
        scheme = fit_scheme(table, names, columns, typed=typed, labels=labels, where=where)
        if written is not None:
            say_zeros(where, written, scheme, columns)
    scheme.check_names(names)
    return scheme.read(table, before=before)


def say_by_position(where: object, names: Sequence[str]) -> None:
    """Warn once that columns are matched by position: the learner started with unnamed arrays."""
    if names:
        say_once(
            str(where),
            "the learner started with unnamed features: columns are matched by position and not "
            "encoded",
        )


def texts_of(columns: Columns | Scheme | None) -> list[str]:
    """Return the columns that a CSV must give as texts, since a scheme defines their kinds."""
    return [each.name for each in columns.columns] if isinstance(columns, Scheme) else []


def feature_names(columns: Iterable[str]) -> list[str]:
    """Return the feature columns of a node table, without the index that pandas writes.

    >>> feature_names(["Unnamed: 0", "id", "age", "label"])
    ['age']
    """
    return [n for n in columns if n not in ("id", "label", "time") and not is_index(n)]


def say_index(where: object, columns: Iterable[str]) -> None:
    """Warn that the index of a data frame is not used, if a table has one."""
    found = [name for name in columns if is_index(name)]
    say_ignored(where, "column", found, "it is the index of a data frame, not a feature")


def check_distinct(node_ids: pa.Array) -> None:
    """Raise if two nodes have the same id."""
    if pa.types.is_union(node_ids.type):
        node_ids = pa.array([repr(node) for node in node_ids.to_pylist()])
    first = pc.index_in(node_ids, value_set=node_ids).to_numpy(zero_copy_only=False)
    again = first != np.arange(len(first))
    if again.any():
        row = int(again.argmax())
        raise DataError(
            f"row {row + 1} repeats id {node_ids[row].as_py()!r} of row {int(first[row]) + 1}: "
            f"expected unique ids"
        )
