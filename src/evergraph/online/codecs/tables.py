"""Deltas from tables of nodes and edges, in the order of their rows.

They are meant for ``LearnerFolder.upsert``, as tables may repeat what the learner has already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evergraph.core.errors import DataError
from evergraph.core.packages import require
from evergraph.online.codecs.node_rows import features_with_words, read_rows, roles_of, word_columns
from evergraph.online.codecs.table_deltas import Rows, TableDeltas, node_parts
from evergraph.online.delta import Delta, EdgeColumns, NodeId, column_of_ids
from evergraph.tables.arrow import pa, pc
from evergraph.tables.choices import Columns
from evergraph.tables.chunks import read_table
from evergraph.tables.columns import (
    RELATION,
    WEIGHT,
    as_whole,
    column,
    column_peaks,
    ids,
    is_number,
    is_text,
    say_dominant_column,
)
from evergraph.tables.edges import EdgeRows, read_edges, say_edges_unread
from evergraph.tables.names import ENDS, ColumnNames, of_edges, of_nodes
from evergraph.tables.nodes import NodeTable, read_nodes, texts_of
from evergraph.tables.scheme import Scheme
from evergraph.tables.sources import Source, named, naming

if TYPE_CHECKING:
    from typing_extensions import Unpack

NODE_OPS = ("add", "update", "forget")
EDGE_OPS = ("add", "remove")


def read_deltas(
    nodes: Source | None,
    edges: Source | None = None,
    *,
    batch: int = 100,
    integers: bool = False,
    forget: str | Sequence[NodeId] = (),
    columns: Columns | Scheme | None = None,
    **names: Unpack[ColumnNames],
) -> TableDeltas:
    """Read tables of nodes and edges, each a ``.csv`` or ``.parquet`` file or a database query.

    Everything is checked here, before any delta is applied. Either table may be missing, and so may
    features and labels of known nodes. A text column ``op`` gives the operation: for a node ``add``
    (the default), ``update`` (of a known node) or ``forget``; for an edge ``add`` or ``remove``.

    integers: whether ids in a CSV are whole numbers; forget: ids of nodes to forget, or the name of
    a column that marks them. columns: the scheme by which columns are read, choices to fit one on
    this table, or None for plain numbers; names: of columns, as ``id="customer_id"``.
    """
    nodes = None if nodes is None else named(nodes, of_nodes(names))
    edges = None if edges is None else named(edges, of_edges(names))
    require("pyarrow", extra="tables", why=f"reading {nodes or edges}")
    if nodes is None and isinstance(forget, str):
        raise DataError(f"{forget}: no such file, and no table of nodes with such a column")
    no_rows = pa.table({name: pa.array([], pa.string()) for name in ("id", *ENDS)})
    marked: Sequence[NodeId] = () if isinstance(forget, str) else forget
    is_update: Rows | None = None
    if nodes is None:
        table = read_nodes(no_rows.select(["id"]), None, where="")
    else:
        table, marked_here, is_update = _read_nodes(nodes, integers, forget, columns)
        marked = [*marked, *marked_here]
    forgotten = tuple(dict.fromkeys(marked))  # each once
    ignored: list[str] = []
    joined, is_removed = read_edges(no_rows), np.zeros(0, dtype=bool)
    if edges is not None:
        known = None if nodes is None else (nodes, table.ids)
        joined, is_removed, ignored = _read_edges(edges, integers, known)

    # Nodes that are to be forgotten are left out, and edges of theirs.
    node_rows = np.flatnonzero(~_is_among(table.ids, forgotten))
    stays = ~(_is_among(joined.ends[0], forgotten) | _is_among(joined.ends[1], forgotten))
    added, removed = np.flatnonzero(stays & ~is_removed), np.flatnonzero(stays & is_removed)
    node_ids, targets = table.ids.take(node_rows).to_pylist(), table.targets()
    labels = [targets[row] for row in node_rows]
    if table.roles.features:
        parts = node_parts(
            node_ids,
            features_with_words(table.features)[node_rows],
            labels,
            () if table.types is None else table.types.take(node_rows).to_pylist(),
            None if is_update is None else is_update[node_rows],
        )
    else:  # of known nodes
        labelled = zip(node_ids, labels, strict=True)
        parts = {"late": [(node, label) for node, label in labelled if label is not None]}
    whole = Delta(
        **parts,
        **edge_parts(joined, added, removed),
        words=word_columns(table.features.scheme),
        scheme=table.features.scheme,
        forgotten=forgotten,
    )
    return TableDeltas(
        whole,
        kind=table.kind,
        batch=batch,
        known=() if table.roles.features else node_ids,
        ignored=(*table.roles.unused, *ignored),
        places={"nodes": (nodes, node_rows), "edges": (edges, added)},
    )


def _is_among(column: pa.Array, chosen: Sequence[NodeId]) -> Rows:
    """Return which ids are among others of possibly mixed types.  [n] -> bool [n]"""
    kind = int if pa.types.is_integer(column.type) else str
    alike = pa.array([node for node in chosen if type(node) is kind], column.type)
    is_chosen: Rows = pc.is_in(column, value_set=alike).to_numpy(zero_copy_only=False)
    return is_chosen


def edge_parts(
    rows: EdgeRows, added: npt.NDArray[np.int64], removed: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Return what a delta has of rows of edges, of which some are added and some removed."""

    def pairs(chosen: npt.NDArray[np.int64]) -> EdgeColumns:
        return EdgeColumns(*(column_of_ids(side.take(chosen)) for side in rows.ends))

    return {
        "edges": pairs(added),
        "weights": () if rows.weights is None else rows.weights[added].tolist(),
        "relations": () if rows.relations is None else rows.relations.take(added).to_pylist(),
        "removed_edges": pairs(removed),
    }


def _read_nodes(
    path: Source, integers: bool, forget: str | Sequence[NodeId], columns: Columns | Scheme | None
) -> tuple[NodeTable, list[NodeId], Rows | None]:
    """Return a table of nodes, the ids of those it marks to forget, and rows that are updates."""
    with naming(path):
        table = read_table(path, ("id",), text=texts_of(columns))
        known = ids(table, "id")
        if integers:
            known = as_whole(known, "id")
            table = table.set_column(table.column_names.index("id"), "id", known)
        marked: list[NodeId] = []
        ops: dict[str, Rows] = {}
        apart = [forget] if isinstance(forget, str) else []
        if isinstance(forget, str):
            marked = known.filter(_marks(table, forget)).to_pylist()
        if says_operations(table):
            ops, apart = operations(table, NODE_OPS), [*apart, "op"]
            marked += known.filter(pa.array(ops["forget"])).to_pylist()
            if ops["forget"].any():
                features = roles_of(table, columns, apart).features
                table = _filled(table, features, ops["forget"], gaps=True)
        written = None if path.suffix == ".parquet" else path
        rows = read_rows(table, columns, None, where=path, apart=apart, written=written)
    if names := rows.roles.features:
        scheme = rows.features.scheme
        called = names if scheme is None else scheme.names
        say_dominant_column(path, column_peaks(rows.features.features), called)
    return rows, marked, ops.get("update")


def _read_edges(
    path: Source, integers: bool, nodes: tuple[Source, pa.Array] | None
) -> tuple[EdgeRows, Rows, list[str]]:
    """Return a table of edges, rows that remove one, and unused columns.

    nodes: the table of nodes, if there is one, and its ids
    """
    with naming(path):
        table = read_table(path, ENDS)
        for name in ENDS if integers else ():
            whole = as_whole(ids(table, name), name)
            table = table.set_column(table.column_names.index(name), name, whole)
        rows, is_removed = read_edge_changes(table)
        other_table, other_ids = nodes or ("column 'source'", rows.ends[0])
        for name, side in zip(ENDS, rows.ends, strict=True):
            if len(side) and len(other_ids) and side.type != other_ids.type:
                raise DataError(
                    f"column {name!r} holds ids of type {side.type}, but those of {other_table} "
                    f"are {other_ids.type}: expected the same (--integers reads those of a CSV as "
                    "numbers)"
                )
    names = [name for name in table.column_names if name != "op"]
    return rows, is_removed, say_edges_unread(path, names)


def read_edge_changes(table: pa.Table) -> tuple[EdgeRows, Rows]:
    """Return the rows of a table of edges, and which of them remove one, by the column ``op``."""
    is_removed = np.zeros(table.num_rows, dtype=bool)
    if "op" in table.column_names:
        is_removed = operations(table, EDGE_OPS)["remove"]
    beside = [name for name in (WEIGHT, RELATION) if name in table.column_names]
    rows = read_edges(_filled(table, beside, is_removed, gaps=False))
    _check_one_operation(rows.ends, is_removed)
    return rows, is_removed


def says_operations(table: pa.Table) -> bool:
    """Whether a table of nodes has a column ``op`` of texts; one of numbers is a feature."""
    return "op" in table.column_names and not is_number(column(table, "op").type)


def operations(table: pa.Table, allowed: Sequence[str]) -> dict[str, Rows]:
    """Return the rows of each operation in the column ``op``; an empty cell means the first."""
    values = column(table, "op")
    either = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    if not is_text(values.type) and values.null_count < len(values):
        raise DataError(f"column 'op' holds {values.type}: expected {either}")
    found = pc.index_in(values.cast(pa.string()), value_set=pa.array(["", *allowed]))
    numbers = np.where(values.is_null(), 0, found.fill_null(-1))
    if (numbers < 0).any():
        row = int((numbers < 0).argmax())
        raise DataError(
            f"row {row + 1} has {values[row].as_py()!r} in column 'op': expected {either}"
        )
    numbers = np.maximum(numbers, 1)  # empty cells mean the first operation
    return {op: numbers == number for number, op in enumerate(allowed, 1)}


def _filled(table: pa.Table, names: Sequence[str], rows: Rows, *, gaps: bool) -> pa.Table:
    """Fill numbers and relations, or only ``gaps`` in them, of rows that remove something."""
    for name in names:
        values = column(table, name)
        if pa.types.is_null(values.type):
            values = values.cast(pa.string() if name == RELATION else pa.float64())
        is_text_too = name == RELATION and is_text(values.type)
        if is_number(values.type) or is_text_too:  # others are rejected, or read as gaps
            some = pa.scalar("-" if is_text_too else 0).cast(values.type)
            there = pa.array(rows)
            values = pc.if_else(pc.and_(values.is_null(), there) if gaps else there, some, values)
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _check_one_operation(ends: tuple[pa.Array, pa.Array], removed: Rows) -> None:
    """Raise if an edge is both added and removed, in either direction, which would be ambiguous."""
    if not removed.any() or removed.all():
        return
    pairs = [frozenset(pair) for pair in zip(*(side.to_pylist() for side in ends), strict=True)]
    gone = {pairs[row]: row for row in reversed(np.flatnonzero(removed).tolist())}
    for row in np.flatnonzero(~removed).tolist():
        if pairs[row] in gone:
            first, last = sorted((row, gone[pairs[row]]))
            raise DataError(
                f"row {last + 1} has {'remove' if last != row else 'add'!r} in column 'op' for the "
                f"edge of row {first + 1}: expected one operation per edge, so give two tables"
            )


def _marks(table: pa.Table, name: str) -> pa.Array:
    """Return which rows of a column are true or 1; false, 0 and empty cells are not."""
    if name not in table.column_names or name in ("id", "label"):
        raise DataError(
            f"has no column {name!r} that marks nodes to forget, and there is no such file either"
        )
    values = column(table, name)
    if pa.types.is_null(values.type):
        return pa.array([False] * len(values))
    if pa.types.is_boolean(values.type):
        return values.fill_null(False)
    if not pa.types.is_integer(values.type):
        raise DataError(f"column {name!r} holds {values.type}: expected true and false, or 1 and 0")
    numbers = values.fill_null(0).to_numpy()
    for row in np.flatnonzero((numbers != 0) & (numbers != 1)).tolist():
        raise DataError(f"row {row + 1} has {numbers[row]} in column {name!r}: expected 0 or 1")
    return pa.array(numbers == 1)
