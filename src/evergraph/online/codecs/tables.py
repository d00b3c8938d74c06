"""Deltas from tables of nodes and edges, in the order of their rows.

They are meant for ``LearnerFolder.upsert``, as tables may repeat what the learner has already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.core.notices import say_ignored
from evergraph.graphs.validation import column_peaks, say_loud_column
from evergraph.online.checking import LARGEST_FEATURE
from evergraph.online.codecs.table_changes import (
    EDGE_OPS,
    NODE_OPS,
    check_one_operation,
    filled_where_removed,
    operations,
    says_operations,
    without_gaps,
)
from evergraph.online.codecs.table_deltas import TableDeltas, among
from evergraph.online.delta import NodeId
from evergraph.tables.choices import Columns
from evergraph.tables.chunks import read_table
from evergraph.tables.columns import as_whole, column, ids, is_typed
from evergraph.tables.edges import ENDS, EdgeRows, read_edges, say_edges_unread
from evergraph.tables.nodes import NodeRoles, NodeTable, read_nodes, texts_of
from evergraph.tables.scheme import Scheme
from evergraph.tables.sources import Source, naming

if TYPE_CHECKING:
    import pyarrow

TOMORROW = "later neighbours are not known yet"  # why gaps cannot be filled from neighbours


def read_deltas(
    nodes: Source | None,
    edges: Source | None = None,
    *,
    batch: int = 100,
    integers: bool = False,
    forget: str | Sequence[NodeId] = (),
    columns: Columns | Scheme | None = None,
) -> TableDeltas:
    """Read tables with the layout of a folder of tables.

    Each is a ``.csv`` or ``.parquet`` file, or a database query.

    Everything is checked here, before any delta is applied. Either table may be missing, and so may
    features and labels of known nodes. A text column ``op`` gives the operation: for a node ``add``
    (the default), ``update`` (of a known node) or ``forget``; for an edge ``add`` or ``remove``.

    integers: whether ids in a CSV are whole numbers; forget: ids of nodes to forget, or the name of
    a column of the node table that marks them; such nodes and their edges are not added. columns:
    the scheme by which columns are read, choices to fit one on this table, or None for plain
    numbers.
    """
    require("pyarrow", extra="tables", why=f"reading {nodes or edges}")
    if isinstance(columns, Columns):
        columns.check_fill("a learner", TOMORROW)
    found = None if nodes is None else _read_nodes(nodes, integers, forget, columns)
    if found is None and isinstance(forget, str):
        raise DataError(f"{forget}: no such file, and no table of nodes with such a column")
    ends = None if edges is None else _read_edges(edges, integers, nodes, found)
    named = () if isinstance(forget, str) else tuple(forget)
    gone = dict.fromkeys((*named, *(() if found is None else found.marked)))  # each once
    return _deltas(found, ends, tuple(gone), batch, (nodes, edges))


@dataclass(frozen=True, eq=False)
class _Nodes:
    """A table of nodes; marked: ids of nodes to forget; updates: as in ``TableDeltas``."""

    rows: NodeTable
    marked: tuple[NodeId, ...] = ()
    updates: npt.NDArray[np.bool_] | None = None

    @property
    def features(self) -> Tensor | None:
        """None if the table has no column of features."""
        return self.rows.features.features if self.rows.roles.features else None

    @property
    def labels(self) -> pyarrow.Array:
        """Targets of nodes, null for none.  [rows]"""
        import pyarrow as pa

        rows = self.rows
        if rows.lists is not None:
            return pa.array(rows.lists, pa.list_(pa.string()))
        if rows.numbers is not None:
            return pa.array(rows.numbers[:, 0], from_pandas=True)
        return pa.nulls(len(rows.ids), pa.string()) if rows.labels is None else rows.labels


@dataclass(frozen=True, eq=False)
class _Edges:
    """A table of edges; removed: rows that remove an edge, without weight and relation."""

    rows: EdgeRows
    removed: npt.NDArray[np.bool_]
    ignored: tuple[str, ...] = ()


def _read_nodes(
    path: Source,
    integers: bool,
    forget: str | Sequence[NodeId],
    columns: Columns | Scheme | None,
) -> _Nodes:
    import pyarrow as pa

    written = path.suffix != ".parquet"
    with naming(path):
        table = read_table(path, ("id",), text=texts_of(columns))
        known = ids(table, "id")
        if integers:
            known = as_whole(known, "id")
            table = table.set_column(table.column_names.index("id"), "id", known)
        marked: tuple[NodeId, ...] = ()
        ops: dict[str, npt.NDArray[np.bool_]] = {}
        apart = [forget] if isinstance(forget, str) else []
        if isinstance(forget, str):
            marked = tuple(known.filter(_marks(table, forget)).to_pylist())
        if says_operations(table):
            ops, apart = operations(table, NODE_OPS), [*apart, "op"]
            marked = (*marked, *known.filter(pa.array(ops["forget"])).to_pylist())
        roles = NodeRoles.of(table.column_names, types=is_typed(table), apart=apart)
        if len(roles.targets) > 1:
            named = ", ".join(roles.targets)
            raise DataError(f"has columns {named}: expected one number to predict")
        if ops:
            table = without_gaps(table, roles.features, ops["forget"])
        rows = read_nodes(
            table,
            columns,
            where=path,
            roles=roles,
            guess=written,
            most=LARGEST_FEATURE,
            as_texts=(lambda names: read_table(path, (), text=names)) if written else None,
        )
    timed = [] if rows.times is None else ["time"]
    say_ignored(path, "column", timed, "a learner takes nodes in the order of their rows")
    found = _Nodes(rows, marked, ops.get("update"))
    if found.features is not None:
        scheme = rows.features.scheme
        called = roles.features if scheme is None else scheme.names
        say_loud_column(path, column_peaks(found.features), called)
    return found


def _read_edges(
    path: Source, integers: bool, nodes_path: Source | None, nodes: _Nodes | None
) -> _Edges:
    with naming(path):
        table = read_table(path, ENDS)
        for name in ENDS if integers else ():
            whole = as_whole(ids(table, name), name)
            table = table.set_column(table.column_names.index(name), name, whole)
        removed = np.zeros(table.num_rows, dtype=bool)
        if "op" in table.column_names:
            removed = operations(table, EDGE_OPS)["remove"]
        rows = read_edges(filled_where_removed(table, removed))
        check_one_operation(rows.ends, removed)
        other = rows.ends[0] if nodes is None else nodes.rows.ids
        for name, side in zip(ENDS, rows.ends, strict=True):
            if len(side) and len(other) and side.type != other.type:
                there = nodes_path if nodes is not None else "column 'source'"
                raise DataError(
                    f"column {name!r} holds ids of type {side.type}, but those of {there} are "
                    f"{other.type}: expected the same (--integers reads those of a CSV as numbers)"
                )
    names = [name for name in table.column_names if name != "op"]
    return _Edges(rows, removed, tuple(say_edges_unread(path, names)))


def _deltas(
    nodes: _Nodes | None,
    edges: _Edges | None,
    gone: Sequence[NodeId],
    batch: int,
    paths: tuple[Source | None, Source | None],
) -> TableDeltas:
    """Return the deltas of tables, without nodes that are to be forgotten."""
    import pyarrow as pa

    nothing = pa.table({name: pa.array([], pa.string()) for name in ("id", *ENDS)})
    if nodes is None:
        nodes = _Nodes(read_nodes(nothing.select(["id"]), None, where=""))
    if edges is None:
        edges = _Edges(read_edges(nothing), np.zeros(0, dtype=bool))
    (source, target), weights = edges.rows.ends, edges.rows.weights
    stays = ~(among(source, gone) | among(target, gone))
    rows = ~among(nodes.rows.ids, gone), stays & ~edges.removed
    keep, kept, parted = (pa.array(mask) for mask in (*rows, stays & edges.removed))
    places = zip(paths, map(np.flatnonzero, rows), strict=True)
    timed = () if nodes.rows.times is None else ("time",)

    def names(values: pyarrow.Array | None, kept: npt.NDArray[np.bool_]) -> Any:
        return None if values is None else np.array(values.to_pylist(), dtype=object)[kept]

    return TableDeltas(
        nodes=nodes.rows.ids.filter(keep),
        labels=nodes.labels.filter(keep),
        features=None if nodes.features is None else nodes.features[torch.from_numpy(rows[0])],
        edges=(source.filter(kept), target.filter(kept)),
        forgotten=tuple(gone),
        batch=batch,
        ignored=(*timed, *edges.ignored),
        places=dict(zip(("nodes", "edges"), places, strict=True)),
        weights=None if weights is None else weights[torch.from_numpy(rows[1])],
        removed=(source.filter(parted), target.filter(parted)),
        updates=None if nodes.updates is None else nodes.updates[rows[0]],
        scheme=nodes.rows.features.scheme,
        relations=names(edges.rows.relations, rows[1]),
        types=names(nodes.rows.types, rows[0]),
    )


def _marks(table: pyarrow.Table, name: str) -> pyarrow.Array:
    """Return which rows of a column are true or 1; false, 0 and empty cells are not."""
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
