"""Graphs of two tables: a folder with ``nodes`` and ``edges``, each ``.csv`` or ``.parquet``.

See ``evergraph.tables.nodes`` and ``evergraph.tables.edges`` for the meaning of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from evergraph.core.errors import DataError, check_choice
from evergraph.core.packages import require
from evergraph.datasets.arrays import assemble
from evergraph.graphs import UNLABELLED, Graph, Targets
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.validation import combined, say_repeated
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.chunks import read_table
from evergraph.tables.edges import (
    UNKNOWN_EDGES,
    between,
    positions,
    read_edges,
    say_edges_unread,
    say_skipped,
)
from evergraph.tables.labels import called, class_names, numbered, say_alike, target_names
from evergraph.tables.names import ENDS, check_columns, of_edges, of_nodes
from evergraph.tables.nodes import read_nodes, texts_of
from evergraph.tables.scheme import Scheme, filled_from_neighbours
from evergraph.tables.sources import Source, named, naming

SUFFIXES = (".csv", ".parquet")


def read_table_folder(
    folder: Path,
    columns: Columns | Scheme | None = None,
    *,
    unknown_edges: str = "refuse",
    repeated: str = "last",
    undirected: bool = False,
    names: Mapping[str, object] | None = None,
) -> Graph:
    """Return the graph in a folder of tables, edges as listed.

    columns: a scheme for the feature columns, or choices that are not guessed; unknown_edges,
    repeated: as in ``load``; undirected: whether (a, b) repeats (b, a); names: of columns.
    """
    nodes_path = named(find_table(folder, "nodes"), of_nodes(names or {}))
    edges_path = named(find_table(folder, "edges"), of_edges(names or {}))
    require("pyarrow", extra="tables", why=f"reading the tables in {folder}")
    with naming(nodes_path):
        nodes = read_table(nodes_path, ("id",), text=texts_of(columns))
        if not target_names(nodes.column_names):
            check_columns(nodes.column_names, ("label",), lambda: nodes)
    with naming(edges_path):
        edges = read_table(edges_path, ENDS)
    paths = nodes_path, edges_path
    options = {"unknown_edges": unknown_edges, "repeated": repeated}
    return graph_of_tables(nodes, edges, columns, paths=paths, undirected=undirected, **options)


def graph_of_tables(
    nodes: pa.Table,
    edges: pa.Table,
    columns: Columns | Scheme | None,
    *,
    paths: tuple[Source, Source],
    unknown_edges: str = "refuse",
    repeated: str = "last",
    undirected: bool = False,
) -> Graph:
    """Return the graph of two tables, edges as listed; without a label nodes have no class.

    paths: paths of the files, or names for messages; texts of a ``.csv`` may be numbers or dates,
    other tables have types. unknown_edges, repeated, undirected: as in ``read_table_folder``.
    """
    check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
    nodes_path, edges_path = paths
    with naming(nodes_path):
        node_table = read_nodes(
            nodes,
            columns or Columns(),
            where=nodes_path,
            written=nodes_path if nodes_path.suffix == ".csv" else None,
        )
    with naming(edges_path):
        if unknown_edges == "skip":
            rows_listed = edges.num_rows
            edges = between(edges, node_table.ids)
            say_skipped(edges_path, rows_listed - edges.num_rows)
        rows = read_edges(edges)
        ends = positions(rows, node_table.ids)
        relations = relation_numbers = None
        if rows.relations is not None:
            relation_names, relation_numbers = _numbered(rows.relations)
        # With ``last``, each direction keeps the last weight that is listed for it.
        both_ways = undirected and repeated != "last"
        edges_once = combined(
            ends, rows.weights, relation_numbers, repeated=repeated, both_ways=both_ways
        )
        say_repeated(edges_path, edges_once.repeats, ends.shape[1], repeated)
        ends = ends[:, edges_once.rows]
        weights = edges_once.checked_weights()
        if relation_numbers is not None:
            relations = Relations.of(
                ends,
                relation_numbers[edges_once.rows],
                relation_names,
                nodes=len(node_table.ids),
                weights=weights,
            )
    features = node_table.features
    scheme = features.scheme
    with naming(nodes_path):
        targets = labels = None
        if node_table.lists is not None:
            targets = Targets.from_lists(node_table.lists)
        elif node_table.numbers is not None:
            names = called(node_table.roles.targets)
            targets = Targets(torch.from_numpy(node_table.numbers), "numbers", names)
        else:
            unknown = torch.full((len(node_table.ids),), UNLABELLED)
            labels = unknown if node_table.labels is None else numbered(node_table.labels)
        graph = assemble(
            nodes_path,
            edge_index=ends,
            features=features.features,
            labels=labels,
            targets=targets,
            time=node_table.times,
            names=node_table.roles.features if scheme is None else scheme.names,
            weights=weights,
        )
        types = None
        if node_table.types is not None:
            type_names, type_numbers = _numbered(node_table.types)
            types = NodeTypes(type_names, type_numbers.to(torch.int16))
    if isinstance(columns, Columns) and columns.fill == "neighbours":
        graph = filled_from_neighbours(graph, features)
    say_edges_unread(edges_path, edges.column_names)
    graph = graph.with_relations(relations).with_types(types)
    classes = () if node_table.labels is None else class_names(node_table.labels)
    say_alike(nodes_path, classes or (() if targets is None else targets.names))
    return replace(graph, columns=scheme, class_names=classes)


def _numbered(values: pa.Array) -> tuple[tuple[str, ...], torch.Tensor]:
    """Return the distinct texts of a column, and the number of each row's text.  int64 [rows]"""
    coded = values.dictionary_encode()
    numbers = torch.from_numpy(coded.indices.to_numpy(zero_copy_only=False).astype("int64"))
    return tuple(coded.dictionary.to_pylist()), numbers


def find_table(folder: Path, name: str) -> Path:
    """Return the only file in the folder with the table ``name``."""
    paths = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if not paths:
        hint = ""
        if any(folder.glob("*.csv")) or any(folder.glob("*.parquet")):
            hint = "; tables with other names become a graph with evergraph import"
        expected = f"expected {name}.csv or {name}.parquet"
        raise DataError(f"{folder}: has no table of {name}: {expected}{hint}")
    if len(paths) > 1:
        raise DataError(f"{folder}: has both {name}.csv and {name}.parquet: expected one of them")
    return paths[0]
