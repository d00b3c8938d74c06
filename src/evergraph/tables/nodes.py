"""The one reader of a table of nodes, wherever it comes from.

``id`` (string or integer), ``label`` (integer or string), or in its place several labels or numbers
to predict (see ``labels`` for both, and for how a missing one is written), optionally ``time``
(integer, date or timestamp); every other column is a feature, read by a ``Scheme``, but for a
``type`` of texts, which tells what kind of thing a node is, and for the nameless index that pandas
writes. Blanks around the names of columns do not count. Messages count rows from 1, the header not
included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.notices import say, say_ignored
from evergraph.tables.choices import Columns
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
from evergraph.tables.fitting import fit_scheme
from evergraph.tables.labels import (
    LABELS,
    label_lists,
    label_values,
    meant_as_label,
    numbers,
    say_missing,
    say_unlabelled,
    spelled_missing,
    target_names,
)
from evergraph.tables.scheme import NodeFeatures, Scheme

if TYPE_CHECKING:
    import pyarrow

RESERVED = ("id", "label", "time")


@dataclass(frozen=True)
class NodeRoles:
    """Which columns of a table of nodes are what.

    Attributes:
        targets: those that stand in place of a label.
        types: whether ``type`` tells what kind of thing a node is.
        features: all others, but for ids, labels and times.

    >>> NodeRoles.of(["id", "size", "type", "target_age"], types=True)
    NodeRoles(targets=['target_age'], types=True, features=['size'])
    """

    targets: list[str]
    types: bool
    features: list[str]

    @classmethod
    def of(cls, names: Sequence[str], *, types: bool, apart: Collection[str] = ()) -> NodeRoles:
        """Return the roles of columns; apart: columns that the caller reads itself."""
        targets = target_names(names)
        others = {*targets, *apart, *([TYPE] if types else [])}
        return cls(targets, types, [name for name in feature_names(names) if name not in others])


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Rows of a table of nodes.

    Attributes:
        ids: int64 or strings.  [rows]
        features: what the feature columns became.
        roles: of the columns.
        labels: text or int64, null where a node has none; None without a column.  [rows]
        missing: how often each way to write a missing label stands there.
        lists: several labels a node, None where they are not known; None without a column.
        numbers: to predict, NaN where one is not known; None without a column.  [rows, columns]
        types: texts; None without a column.  [rows]
        times: int64; None without a column.  [rows]
        dated: whether times were written as dates.
    """

    ids: pyarrow.Array
    features: NodeFeatures
    roles: NodeRoles
    labels: pyarrow.Array | None = None
    missing: Mapping[str, int] = field(default_factory=dict)
    lists: list[list[str] | None] | None = None
    numbers: NDArray[np.float32] | None = None
    types: pyarrow.Array | None = None
    times: Tensor | None = None
    dated: bool = False


def read_nodes(
    table: pyarrow.Table,
    columns: Columns | Scheme | None,
    *,
    where: object,
    roles: NodeRoles | None = None,
    guess: bool = False,
    before: int = 0,
    piece: bool = False,
    most: float = np.inf,
    as_texts: Callable[[list[str]], pyarrow.Table] | None = None,
) -> NodeTable:
    """Return what a table of nodes, or a piece of one, holds.

    Args:
        table: the rows, of a file, a frame or a database.
        columns: the scheme of the first table, choices for one that is fitted on this one, or None
            for numbers as they are.
        where: the table is from, for what is said.
        roles: of its columns, where the table alone does not show them.
        guess: whether texts may be numbers or dates, as in a CSV, which has no kinds.
        before: how many rows came before these.
        piece: whether these are not all rows, so that whoever reads the others says what is new in
            them and whether ids are there twice.
        most: the largest absolute value of a feature that is allowed.
        as_texts: reads the table again, some columns as texts, as they are written.
    """
    roles = roles or NodeRoles.of(table.column_names, types=is_typed(table))
    known = ids(table, "id", before=before)
    if not piece:
        check_distinct(known)
        say_index(where, table.column_names)
    labels: pyarrow.Array | None = None
    missing: dict[str, int] = {}
    lists: list[list[str] | None] | None = None
    goals: NDArray[np.float32] | None = None
    if roles.targets == [LABELS]:
        lists = label_lists(column(table, LABELS))
    elif roles.targets:
        named = [(column(table, name), name) for name in roles.targets]
        goals = np.stack([numbers(values, name, before=before) for values, name in named], axis=1)
    elif "label" in table.column_names:
        given = column(table, "label")
        labels = label_values(given, guess=guess, before=before)
        missing = spelled_missing(given)
    elif isinstance(columns, Columns):
        say_unlabelled(where, roles.features)
    when, dated = times(table, before=before) if "time" in table.column_names else (None, False)
    read = read_features(
        table,
        columns,
        roles.features,
        where=where,
        guess=guess,
        labels=labels,
        before=before,
        piece=piece,
        most=most,
        as_texts=as_texts,
    )
    if not piece:
        say_missing(where, missing)
    return NodeTable(
        known,
        read,
        roles,
        labels,
        missing,
        lists,
        goals,
        types=filled_texts(table, TYPE, before=before) if roles.types else None,
        times=when,
        dated=dated,
    )


def read_features(
    table: pyarrow.Table,
    columns: Columns | Scheme | None,
    names: list[str] | None = None,
    *,
    where: object,
    guess: bool = False,
    labels: pyarrow.Array | None = None,
    before: int = 0,
    most: float = np.inf,
    piece: bool = False,
    as_texts: Callable[[list[str]], pyarrow.Table] | None = None,
    position_said: bool = False,
) -> NodeFeatures:
    """Return the features of named columns; for the arguments see ``read_nodes``.

    labels: of the rows, null where there is none, to warn of a column that gives them away;
    position_said: whether it was said before that names are not looked at.
    """
    names = feature_names(table.column_names) if names is None else names
    if columns is None and not (position_said or piece):
        say_by_position(where, names)
    if isinstance(columns, Columns):
        columns.check_names(names)
    if columns is None or not names or not table.num_rows:
        return NodeFeatures(features(table, names, before=before, most=most), None)
    scheme = columns
    if isinstance(scheme, Columns):
        plain = all(is_number(table.schema.field(name).type) for name in names)
        if as_texts is not None and (scheme.reads_texts or not plain):
            table = as_texts(names)
        scheme = fit_scheme(table, names, scheme, typed=not guess, labels=labels, where=where)
    scheme.check_names(names)
    read = scheme.read(table, before=before)
    if not piece:
        read.say_new(where)
    return read


def say_by_position(where: object, names: Sequence[str]) -> None:
    """Say that a learner keeps no names, having begun with arrays, so that columns have none."""
    if names:
        say(
            where,
            "the learner began with numbers that had no names: columns are matched by position, "
            "and taken as they are",
        )


def texts_of(columns: Columns | Scheme | None) -> list[str]:
    """Return the columns that a CSV is to give as texts, since a scheme knows what they are."""
    return [each.name for each in columns.columns] if isinstance(columns, Scheme) else []


def feature_names(columns: Iterable[str]) -> list[str]:
    """Return which columns of a node table are features; the index that pandas writes is none.

    >>> feature_names(["Unnamed: 0", "id", "age", "label"])
    ['age']
    """
    return [name for name in columns if name not in RESERVED and not is_index(name)]


def is_index(name: str) -> bool:
    """Whether a column is the nameless index of a data frame, as pandas writes it."""
    return bool(re.fullmatch(r"(Unnamed: \d+)?|__index_level_\d+__", name))


def say_index(where: object, columns: Iterable[str]) -> None:
    """Say that the index of a data frame is not used, where a table has one."""
    found = [name for name in columns if is_index(name)]
    say_ignored(where, "column", found, "it is the index of a data frame, not a feature")


def check_labelled(found: list[str]) -> None:
    """Raise unless there is a column ``label``, and say which may have been meant."""
    meant = f"; if {meant_as_label(found)} holds them, rename it" if meant_as_label(found) else ""
    if "label" not in found:
        raise DataError(f"has no column 'label': it has {', '.join(found)}{meant}")


def check_distinct(node_ids: pyarrow.Array) -> None:
    """Raise if two nodes have the same id."""
    import pyarrow.compute as pc

    first = pc.index_in(node_ids, value_set=node_ids).to_numpy(zero_copy_only=False)
    again = np.flatnonzero(first != np.arange(len(first)))
    if len(again):
        row = int(again[0])
        raise DataError(
            f"row {row + 1} repeats id {node_ids[row].as_py()!r} of row {int(first[row]) + 1}: "
            f"expected every id once"
        )
