"""Deltas from tables of nodes and edges, in the order of their rows.

They are meant for ``LearnerFolder.upsert``: a table may hold what the learner knows already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.core.notices import say_ignored
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.scheme import Scheme
from evergraph.datasets.files.assembly import naming
from evergraph.datasets.files.sources import Source
from evergraph.datasets.files.table_columns import column, ids, times
from evergraph.datasets.files.table_folder import (
    ENDS,
    check_distinct,
    feature_names,
    node_features,
    read_table,
    say_edges_unread,
    say_index,
    texts_of,
)
from evergraph.datasets.files.table_labels import (
    label_values,
    numbered,
    say_missing,
    say_unlabelled,
    spelled_missing,
)
from evergraph.datasets.files.table_relations import RELATION, TYPE, node_types, relation_names
from evergraph.datasets.files.table_targets import LABELS, TARGET, label_lists, numbers
from evergraph.graphs.validation import column_peaks, say_loud_column
from evergraph.online.checking import LARGEST_FEATURE
from evergraph.online.codecs.table_changes import (
    EDGE_OPS,
    NODE_OPS,
    check_one_operation,
    operations,
    says_operations,
    weights_where,
    without_gaps,
)
from evergraph.online.codecs.table_deltas import TableDeltas, among
from evergraph.online.delta import NodeId

if TYPE_CHECKING:
    import pyarrow

TOMORROW = "the neighbours of tomorrow are not known today"  # so gaps cannot be filled from them


def read_deltas(
    nodes: Source | None,
    edges: Source | None = None,
    *,
    batch: int = 100,
    integers: bool = False,
    forget: str | Sequence[NodeId] = (),
    columns: Columns | Scheme | None = None,
) -> TableDeltas:
    """Read tables, laid out as those of a folder of tables.

    Each is a ``.csv`` or ``.parquet``, or a query to a database.

    All of it is checked here, before anything is taken in. Either table may be missing, and so may
    the features and the labels of nodes that are known already. A column ``op`` of texts says of a
    node whether it is to ``add`` (where nothing is said), to ``update``, being known, or to
    ``forget``; of an edge whether it is to ``add`` or to ``remove``.

    integers: whether ids that a CSV writes as text are whole numbers; forget: ids of nodes to
    forget, or the name of a column of the node table that marks them. Such nodes and their edges
    are not taken in. columns: by which scheme columns are read, choices for one that is fitted on
    this table, or None for plain numbers.
    """
    require("pyarrow", extra="tables", why=f"reading {nodes or edges}")
    if isinstance(columns, Columns):
        columns.check_fill("a learner", TOMORROW)
    found = None if nodes is None else _read_nodes(nodes, integers, forget, columns)
    if found is None and isinstance(forget, str):
        raise DataError(f"{forget}: no such file, and no table of nodes that has such a column")
    ends = None if edges is None else _read_edges(edges, integers, nodes, found)
    named = () if isinstance(forget, str) else tuple(forget)
    gone = dict.fromkeys((*named, *(() if found is None else found.marked)))  # each once
    return _deltas(found, ends, tuple(gone), batch, (nodes, edges))


@dataclass(frozen=True, eq=False)
class _Nodes:
    """What a table of nodes holds.

    marked: the ids of nodes to forget; updates, scheme: as in deltas.
    """

    ids: pyarrow.Array
    labels: pyarrow.Array
    features: Tensor | None
    ignored: tuple[str, ...]
    marked: tuple[NodeId, ...]
    updates: npt.NDArray[np.bool_] | None = None
    scheme: Scheme | None = None
    types: npt.NDArray[np.object_] | None = None


@dataclass(frozen=True, eq=False)
class _Edges:
    """What a table of edges holds; removed: which rows are to go; weights, relations: of others."""

    ends: tuple[pyarrow.Array, pyarrow.Array]
    weights: Tensor | None
    removed: npt.NDArray[np.bool_]
    ignored: tuple[str, ...] = ()
    relations: npt.NDArray[np.object_] | None = None


def _read_nodes(
    path: Source,
    integers: bool,
    forget: str | Sequence[NodeId],
    columns: Columns | Scheme | None,
) -> _Nodes:
    import pyarrow as pa

    with naming(path):
        table = read_table(path, ("id",), text=texts_of(columns))
        known = _ids(table, "id", integers)
        check_distinct(known)
        names = feature_names(table.column_names)
        say_index(path, table.column_names)
        marked: tuple[NodeId, ...] = ()
        if isinstance(forget, str):
            marked = tuple(known.filter(_marks(table, forget)).to_pylist())
            names = [name for name in names if name != forget]
        answers = _answer_column(table.column_names)
        names = [name for name in names if name != answers]
        updates = None
        if says_operations(table):
            ops, names = operations(table, NODE_OPS), [name for name in names if name != "op"]
            table, updates = without_gaps(table, names, ops["forget"]), ops["update"]
            marked = (*marked, *known.filter(pa.array(ops["forget"])).to_pylist())
        types = node_types(table)
        names = names if types is None else [name for name in names if name != TYPE]
        labels, spelled = pa.nulls(len(known), pa.string()), {}
        if "label" in table.column_names:
            given = column(table, "label")
            labels = label_values(given, guess=path.suffix != ".parquet")
            spelled = spelled_missing(given)
        elif answers == LABELS:
            labels = pa.array(label_lists(column(table, LABELS)), pa.list_(pa.string()))
        elif answers == TARGET:
            labels = pa.array(numbers(column(table, TARGET), TARGET), from_pandas=True)
        elif isinstance(columns, Columns):
            say_unlabelled(path, names)
        matrix, scheme = None, None
        if names:
            classes = None if answers else numbered(labels)
            read = node_features(path, table, names, columns, labels=classes, most=LARGEST_FEATURE)
            matrix, scheme = read.features, read.scheme
        timed = "time" in table.column_names
        if timed:
            times(table)  # what cannot be loaded cannot be taken in either
    say_missing(path, spelled)
    ignored = ("time",) if timed else ()
    say_ignored(path, "column", ignored, "a learner takes nodes in the order of their rows")
    if matrix is not None:
        called = names if scheme is None else scheme.names
        say_loud_column(path, column_peaks(matrix), called)
    told = None if types is None else np.array(types.of(torch.arange(len(known))), dtype=object)
    return _Nodes(known, labels, matrix, ignored, marked, updates, scheme, told)


def _answer_column(columns: list[str]) -> str | None:
    """Return which column holds several labels or a number, where there is none of classes."""
    found = [name for name in (LABELS, TARGET) if name in columns and "label" not in columns]
    return found[0] if found else None


def _read_edges(
    path: Source, integers: bool, nodes_path: Source | None, nodes: _Nodes | None
) -> _Edges:
    import pyarrow as pa

    with naming(path):
        table = read_table(path, ENDS)
        source, target = (_ids(table, name, integers) for name in ENDS)
        other = source if nodes is None else nodes.ids
        for name, side in zip(ENDS, (source, target), strict=True):
            if len(side) and len(other) and side.type != other.type:
                there = nodes_path if nodes is not None else "column 'source'"
                raise DataError(
                    f"column {name!r} holds ids of type {side.type}, but those of {there} are "
                    f"{other.type}: expected the same, which --integers makes of a CSV"
                )
        removed = np.zeros(len(source), dtype=bool)
        if "op" in table.column_names:
            removed = operations(table, EDGE_OPS)["remove"]
            check_one_operation((source, target), removed)
        weights = weights_where(table, ~removed)
        added = table.filter(pa.array(~removed))
        relations = relation_names(added)
    names = [name for name in table.column_names if name != "op"]
    unread = tuple(say_edges_unread(path, names, known=(RELATION,)))
    named = None if relations is None else np.array(relations, dtype=object)
    return _Edges((source, target), weights, removed, unread, named)


def _deltas(
    nodes: _Nodes | None,
    edges: _Edges | None,
    gone: Sequence[NodeId],
    batch: int,
    paths: tuple[Source | None, Source | None],
) -> TableDeltas:
    """Return what is left of tables without the nodes that are to go."""
    import pyarrow as pa

    nothing = pa.array([], pa.string())
    if nodes is None:
        nodes = _Nodes(nothing, nothing, None, (), ())
    if edges is None:
        edges = _Edges((nothing, nothing), None, np.zeros(0, dtype=bool))
    source, target = edges.ends
    stays = ~(among(source, gone) | among(target, gone))
    rows = ~among(nodes.ids, gone), stays & ~edges.removed
    keep, kept, parted = (pa.array(mask) for mask in (*rows, stays & edges.removed))
    chosen = torch.from_numpy(stays[~edges.removed])
    places = zip(paths, map(np.flatnonzero, rows), strict=True)
    return TableDeltas(
        nodes=nodes.ids.filter(keep),
        labels=nodes.labels.filter(keep),
        features=None if nodes.features is None else nodes.features[torch.from_numpy(rows[0])],
        edges=(source.filter(kept), target.filter(kept)),
        forgotten=tuple(gone),
        batch=batch,
        ignored=(*nodes.ignored, *edges.ignored),
        places=dict(zip(("nodes", "edges"), places, strict=True)),
        weights=None if edges.weights is None else edges.weights[chosen],
        removed=(source.filter(parted), target.filter(parted)),
        updates=None if nodes.updates is None else nodes.updates[rows[0]],
        scheme=nodes.scheme,
        relations=None if edges.relations is None else edges.relations[chosen.numpy()],
        types=None if nodes.types is None else nodes.types[rows[0]],
    )


def _marks(table: pyarrow.Table, name: str) -> pyarrow.Array:
    """Return which rows of a column say yes: true or 1; false, 0 and no value say no."""
    import pyarrow as pa

    if name not in table.column_names or name in ("id", "label"):
        raise DataError(
            f"has no column {name!r} that marks nodes to forget, and there is no such file either"
        )
    values = column(table, name)
    if pa.types.is_null(values.type):
        return pa.array([False] * len(values))
    if pa.types.is_boolean(values.type):
        return values.fill_null(False)
    if pa.types.is_integer(values.type):
        numbers = values.fill_null(0).to_numpy()
        wrong = np.flatnonzero((numbers != 0) & (numbers != 1))
        if not len(wrong):
            return pa.array(numbers == 1)
        row = int(wrong[0])
        raise DataError(f"row {row + 1} has {numbers[row]} in column {name!r}: expected 0 or 1")
    raise DataError(f"column {name!r} holds {values.type}: expected true and false, or 1 and 0")


def _ids(table: pyarrow.Table, name: str, integers: bool) -> pyarrow.Array:
    import pyarrow as pa

    found = ids(table, name)
    if not integers or pa.types.is_integer(found.type):
        return found
    try:
        return found.cast(pa.int64())
    except pa.ArrowInvalid:
        whole = [_is_whole(text) for text in found.to_pylist()]
        row = whole.index(False)
        raise DataError(
            f"row {row + 1} has {found[row].as_py()!r} in column {name!r}: expected an integer of "
            "64 bits, since --integers was given"
        ) from None


def _is_whole(text: str) -> bool:
    import pyarrow as pa

    try:
        pa.scalar(text).cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True
