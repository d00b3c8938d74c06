"""Graphs in a folder of two tables: ``nodes`` and ``edges``, each ``.csv`` or ``.parquet``.

nodes: ``id`` (string or integer), ``label`` (integer or string; see ``table_labels`` for how a
missing one is written), or in its place several labels or numbers to predict (see
``table_targets``), optionally ``time`` (integer, date or timestamp; see ``table_times``); every
other column is a feature, read as ``datasets.columns`` says, but for a ``type`` of texts, which
tells what kind of thing a node is, and for the nameless index that pandas writes. edges: ``source``
and ``target``, ids of nodes, and optionally ``weight``, a number that is not negative (of an edge
listed twice the last counts), and ``relation``, what an edge stands for. Other columns are ignored,
which is said. Blanks around the names of columns do not count. Messages count rows from 1, the
header not included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.core.notices import say, say_ignored
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.fitting import fit_scheme
from evergraph.datasets.columns.scheme import Scheme, filled_from_neighbours
from evergraph.datasets.columns.values import Mask
from evergraph.datasets.download import reason
from evergraph.datasets.files.assembly import assemble, naming
from evergraph.datasets.files.sources import (
    CsvTable,
    Query,
    Source,
    StoredFile,
    as_csv,
    delimiter_hint,
    whole_answer,
)
from evergraph.datasets.files.table_columns import (
    WEIGHT,
    edge_weights,
    features,
    ids,
    is_number,
    read_named,
    stripped,
    times,
)
from evergraph.datasets.files.table_labels import labels, meant_as_label, say_unlabelled
from evergraph.datasets.files.table_relations import (
    RELATION,
    TYPE,
    edge_relations,
    is_typed,
    node_types,
)
from evergraph.datasets.files.table_targets import target_names, targets
from evergraph.graphs import UNLABELLED, Graph

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".csv", ".parquet")
RESERVED = ("id", "label", "time")
ENDS = ("source", "target")
UNKNOWN_EDGES = ("refuse", "skip")  # what becomes of edges to nodes that are not there
# Columns of a CSV whose kind depends on all rows, or that stay text.
NODE_TEXT = ("id", "label", "labels", "time")


def read_table_folder(
    folder: Path, columns: Columns | Scheme | None = None, *, unknown_edges: str = "refuse"
) -> Graph:
    """Return the graph that a folder of tables holds, edges as listed.

    columns: how feature columns are read, or what of it is not to be guessed; unknown_edges: as in
    ``load``.
    """
    nodes_path, edges_path = find_table(folder, "nodes"), find_table(folder, "edges")
    require("pyarrow", extra="tables", why=f"reading the tables in {folder}")
    with naming(nodes_path):
        nodes = read_table(nodes_path, ("id",), text=texts_of(columns))
        if not target_names(nodes.column_names):
            check_labelled(nodes.column_names)
    with naming(edges_path):
        edges = read_table(edges_path, ENDS)
    paths = nodes_path, edges_path
    return graph_of_tables(nodes, edges, columns, paths=paths, unknown_edges=unknown_edges)


def graph_of_tables(
    nodes: pyarrow.Table,
    edges: pyarrow.Table,
    columns: Columns | Scheme | None,
    *,
    paths: tuple[Path, Path],
    unknown_edges: str = "refuse",
) -> Graph:
    """Return the graph of two tables, edges as listed; without a label nodes have no class.

    paths: of the files that they are from, or what messages call them; texts of a ``.csv`` may be
    numbers or dates, all others have their kinds. unknown_edges: as in ``load``.
    """
    check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
    nodes_path, edges_path = paths
    with naming(nodes_path):
        targeted = target_names(nodes.column_names)
        node_ids = ids(nodes, "id")
        check_distinct(node_ids)
    with naming(edges_path):
        if unknown_edges == "skip":
            listed, edges = edges.num_rows, _between(edges, node_ids)
            say_skipped(edges_path, listed - edges.num_rows)
        ends = [positions(edges, column, node_ids) for column in ENDS]
        weights = edge_weights(edges)
        related = edge_relations(edges, torch.stack(ends), weights, nodes=len(node_ids))
    left_out = {*targeted, *([TYPE] if is_typed(nodes) else [])}
    names = [name for name in feature_names(nodes.column_names) if name not in left_out]
    say_index(nodes_path, nodes.column_names)
    with naming(nodes_path):
        classes, called = (None, ()) if targeted else _classes(nodes, nodes_path)
        read = node_features(nodes_path, nodes, names, columns or Columns(), labels=classes)
        graph = assemble(
            nodes_path,
            edge_index=torch.stack(ends),
            features=read.features,
            labels=classes,
            targets=targets(nodes) if targeted else None,
            time=times(nodes)[0] if "time" in nodes.column_names else None,
            names=names if read.scheme is None else read.scheme.names,
            weights=weights,
        )
        types = node_types(nodes)
    if read.scheme is not None and isinstance(columns, Columns) and columns.fill == "neighbours":
        graph = filled_from_neighbours(graph, read.scheme, read.gaps)
    say_edges_unread(edges_path, edges.column_names, known=(RELATION,))
    graph = graph.with_relations(related).with_types(types)
    return replace(graph, columns=read.scheme, class_names=called)


def _classes(nodes: pyarrow.Table, path: Path) -> tuple[Tensor, tuple[str, ...]]:
    if "label" in nodes.column_names:
        return labels(nodes, path)
    say_unlabelled(path, nodes.column_names)
    return torch.full((nodes.num_rows,), UNLABELLED), ()


@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """What the feature columns of a table became: float32 [rows, dims], and by which scheme.

    scheme: None where they are numbers as they are; gaps: rows without a value, by column.
    """

    features: Tensor
    scheme: Scheme | None
    gaps: Mapping[str, Mask] = field(default_factory=dict)


def node_features(
    path: Source,
    table: pyarrow.Table,
    names: list[str],
    columns: Columns | Scheme | None,
    *,
    labels: Tensor | None = None,
    most: float = np.inf,
) -> NodeFeatures:
    """Return the features of a table that lies in a file.

    columns: a scheme that was fitted before, choices for one that is fitted now, or None for
    numbers as they are; labels: int64 [rows], to warn of what gives them away; most: as in
    ``features``.
    """
    scheme = columns
    if scheme is None or not names or not table.num_rows:
        if isinstance(scheme, Columns):
            scheme.check_names(names)
        if scheme is None:
            say_by_position(path, names)
        return NodeFeatures(features(table, names, most=most), None)
    if isinstance(scheme, Columns):
        known = None if labels is None else _nulled(labels)
        typed = path.suffix != ".csv"
        plain = all(is_number(table.schema.field(name).type) for name in names)
        if not typed and (scheme.reads_texts or not plain):
            table = read_table(path, (), text=names)
        scheme = fit_scheme(table, names, scheme, typed=typed, labels=known, where=path)
    scheme.check_names(names)
    read = scheme.read(table)
    read.say_new(path)
    return NodeFeatures(read.features, scheme.with_gaps(read.gaps), read.masks)


def say_by_position(where: object, names: Sequence[str]) -> None:
    """Say that a learner keeps no names, having begun with arrays, so that columns have none."""
    if names:
        say(
            where,
            "the learner began with numbers that had no names: columns are matched by position, "
            "and taken as they are",
        )


def _nulled(labels: Tensor) -> pyarrow.Array:
    import pyarrow as pa

    return pa.array(labels.numpy(), mask=(labels == UNLABELLED).numpy())


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


def say_edges_unread(path: object, columns: list[str], *, known: tuple[str, ...] = ()) -> list[str]:
    """Say which columns of an edge table are not used, and return them.

    known: which are, besides the ends and the weight.
    """
    used = (*ENDS, WEIGHT, *known)
    ignored = [name for name in columns if name not in used]
    told = f"{', '.join(used[:-1])} and {used[-1]}"
    say_ignored(path, "column", ignored, f"only {told} of edges are used")
    return ignored


def say_skipped(path: object, edges: int) -> None:
    """Say how many edges were skipped, since they join nodes that are not there."""
    if edges:
        many = "1 edge joins" if edges == 1 else f"{edges:,} edges join"
        say(path, f"{many} a node that is not there: skipped")


def _between(edges: pyarrow.Table, node_ids: pyarrow.Array) -> pyarrow.Table:
    """Return the edges both ends of which are nodes."""
    import pyarrow.compute as pc

    return edges.filter(pc.and_(*(_places(edges, name, node_ids).is_valid() for name in ENDS)))


def find_table(folder: Path, name: str) -> Path:
    """Return the one file of the folder that holds the table called ``name``."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if not found:
        raise DataError(f"{folder}: has no table of {name}: expected {name}.csv or {name}.parquet")
    if len(found) > 1:
        raise DataError(f"{folder}: has both {name}.csv and {name}.parquet: expected one of them")
    return found[0]


def read_table(
    path: Source, columns: tuple[str, ...], *, text: Sequence[str] = ()
) -> pyarrow.Table:
    """Read a table, of a file or of a query to a database, that has at least the given columns.

    Ids in a CSV stay text, so that ``007`` and ``7`` are two nodes in both files. Labels and times
    are text as well until all of them are known, and so are the columns that ``text`` names.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        if isinstance(path, Query):
            table: Any = stripped(whole_answer(path))
        elif isinstance(path, StoredFile):
            table = stripped(pyarrow.parquet.read_table(path.open()))
        elif path.suffix == ".parquet":
            table = stripped(pyarrow.parquet.read_table(path))
        else:
            texts = (*ENDS, RELATION) if columns == ENDS else NODE_TEXT
            types = {name: pyarrow.string() for name in (*texts, *text)}
            csv = as_csv(path)
            table = csv.with_points(read_named(partial(_read_csv, csv), types), texts)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as a table ({reason(error)}){_hint(path)}") from error
    check_columns(table.column_names, columns)
    return table


def _hint(path: Source) -> str:
    csv = as_csv(path) if isinstance(path, Path) and path.suffix == ".csv" else path
    return csv.hint() if isinstance(csv, CsvTable) else ""


def _read_csv(table: CsvTable, types: Mapping[str, Any]) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.csv as csv

    options = table.options(column_types=types)
    try:
        return csv.read_csv(table.path, **options)
    except pa.ArrowInvalid:
        pass
    try:  # only one thread knows the row
        return csv.read_csv(table.path, **options, read_options=csv.ReadOptions(use_threads=False))
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(rows_from_one(str(error), -1)) from error


def rows_from_one(said: str, shift: int) -> str:
    """Return a message of pyarrow with its rows as we count them; it counts the header.

    >>> rows_from_one("CSV parse error: Row #3: Expected 2 columns, got 1", -1)
    'CSV parse error: row 2: Expected 2 columns, got 1'
    """
    return re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) + shift}", said)


def check_columns(found: list[str], needed: tuple[str, ...]) -> None:
    """Raise unless every needed column is there and none is there twice."""
    for column in needed:
        if column not in found:
            hint = delimiter_hint(found)
            raise DataError(f"has no column {column!r}: it has {', '.join(found)}{hint}")
    for column in found:
        if found.count(column) > 1:
            raise DataError(f"has {found.count(column)} columns called {column!r}: expected one")


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


def positions(edges: pyarrow.Table, column: str, node_ids: pyarrow.Array) -> Tensor:
    """Return the node that each id of a column names.  int64 [edges]"""
    found = _places(edges, column, node_ids)
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        value = edges.column(column)[row].as_py()
        raise DataError(f"row {row + 1} has {column} {value!r}: expected the id of a node")
    return torch.from_numpy(found.to_numpy().astype(np.int64))


def _places(edges: pyarrow.Table, column: str, node_ids: pyarrow.Array) -> pyarrow.Array:
    """Return which node each id of a column names, null where it names none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = ids(edges, column)
    if values.type != node_ids.type:  # one file has numbers, the other text
        values, node_ids = values.cast(pa.string()), node_ids.cast(pa.string())
    return pc.index_in(values, value_set=node_ids)
