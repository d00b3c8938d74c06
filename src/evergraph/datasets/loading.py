"""Loading of a graph by dataset name, by file path, or from an object that holds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError, say
from evergraph.datasets.adapters import as_graph
from evergraph.datasets.arrays import fitting_layout, read_npz, read_pt
from evergraph.datasets.base import catalogue, check_facts, datasets, default_cache
from evergraph.datasets.table_folder import read_table_folder
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import (
    check_numbers,
    is_graph_folder,
    open_graph_folder,
    read_facts,
)
from evergraph.tables import Columns, Encoder, Scheme
from evergraph.tables.choices import columns_of
from evergraph.tables.chunks import SUFFIXES
from evergraph.tables.frames import is_table
from evergraph.tables.sources import naming

READERS: dict[str, Callable[..., Graph]] = {".npz": read_npz, ".pt": read_pt}


def load(
    source: Any,
    /,
    *,
    undirected: bool = True,
    directions: bool = False,
    cache: Path | None = None,
    columns: Columns | Mapping[str, str | Encoder] | Scheme | None = None,
    unknown_edges: str = "refuse",
    repeated: str = "last",
    **parameters: Any,
) -> Graph:
    """Return a graph, undirected unless ``undirected=False``.

    Args:
        source: the name of a registered dataset; or a path: an ``.npz`` or ``.pt`` file, a folder
            with tables of nodes and edges, or a graph made by ``evergraph import``, which stays on
            disk; or an object of NetworkX, SciPy, pandas, Polars, Arrow or PyG that holds a graph,
            see ``named_graph``. A dataset takes precedence over a file with the same name.
        undirected: whether to add the reverse of every edge.
        directions: whether to keep the direction of edges as a relation, see
            ``Graph.with_directions``.
        cache: folder for datasets; ``default_cache()`` if not given.
        columns: for tables in a folder or in memory: how to read feature columns that should not
            be guessed (``{"*": "raw"}`` leaves numbers unscaled), or the ``columns`` of a graph
            loaded before, to read another table in the same way.
        unknown_edges: for tables with edges to nodes that are not in the table of nodes: ``refuse``
            raises, ``skip`` leaves them out and reports how many.
        repeated: for edges that a file, a table or an object lists several times: ``last`` weight
            counts, or the ``sum`` or ``mean`` of the weights, or the ``count`` of the rows, or
            ``refuse``. In an undirected table (b, a) is then (a, b) again.
        parameters: passed to the dataset's constructor. Tables take the names of their columns, as
            ``id="customer_id"``; ``label``, ``source``, ``target`` and ``weight`` likewise. An
            object takes ``features``, ``labels`` or ``edges``, as in ``named_graph``.

    >>> import evergraph.datasets.synthetic
    >>> load("synthetic", nodes=100, classes=4, features=8)
    Graph(nodes=100, edges=1000, features=8, classes=4)
    """
    one_edge = undirected and not directions  # whether (a, b) and (b, a) are
    if not isinstance(source, str | Path):
        options: dict[str, Any] = {} if columns is None else {"columns": columns}
        if unknown_edges != "refuse":
            options["unknown_edges"] = unknown_edges
        if is_table(source[0] if isinstance(source, tuple) and source else source):
            options["undirected"] = one_edge
        graph = as_graph(source, repeated=repeated, **options, **parameters)
        return _fitting(graph, undirected=undirected, directions=directions)
    if isinstance(source, str) and is_registered(source):
        say_hidden(source)
        check_no_columns(source, columns, unknown_edges, repeated)
        return load_named(
            source, undirected=undirected, directions=directions, cache=cache, **parameters
        )
    if isinstance(source, str):
        check_source(source, **parameters)
    graph = read_path(
        Path(source), columns, unknown_edges, repeated, undirected=one_edge, names=parameters
    )
    return _fitting(graph, undirected=undirected, directions=directions)


def _fitting(graph: Graph, *, undirected: bool, directions: bool) -> Graph:
    """Return a graph with a suitable feature layout, undirected if wanted."""
    if not graph.mapped:
        columns = graph.columns
        graph = replace(graph.with_features(fitting_layout(graph.features)), columns=columns)
    graph = graph.with_directions() if directions else graph
    return graph.to_undirected() if undirected else graph


def load_outline(source: str | Path, /, *, repeated: str = "last", **names: Any) -> Graph:
    """Return a graph for counting: like ``load``, with edges as listed and arbitrary features."""
    if isinstance(source, str) and is_registered(source):
        say_hidden(source)
        check_no_columns(source, None, repeated=repeated)
        dataset = datasets.make(source, **names)
        graph = dataset.load_outline(default_cache())
        check_facts(dataset.name, graph)
        return graph
    return load(source, undirected=False, repeated=repeated, **names)


def load_named(
    name: str, *, undirected: bool, directions: bool, cache: Path | None, **parameters: Any
) -> Graph:
    """Return a registered dataset, checked against the catalogue if it has default parameters."""
    dataset = datasets.make(name, **parameters)
    cache = default_cache() if cache is None else cache
    both_ways = undirected and not directions  # directions need the edges as published
    graph = dataset.load_both_ways(cache) if both_ways else dataset.load(cache)
    facts = catalogue().get(dataset.name)
    if not parameters:
        check_facts(dataset.name, graph)
    graph = graph.with_directions() if directions else graph
    if not undirected or (facts is not None and not facts.directed):
        return graph  # the largest graphs are published undirected and need no sorting
    return graph.to_undirected()


def check_no_columns(
    source: object, columns: object, unknown_edges: str = "refuse", repeated: str = "last"
) -> None:
    """Raise if options for tables are given with another source."""
    is_given = {
        "columns": columns is not None,
        "unknown_edges": unknown_edges != "refuse",
        "repeated": repeated != "last",
    }
    for name, given in is_given.items():
        if given:
            message = f"{name} must not be given with {source}: only a folder of tables takes it"
            raise ConfigurationError(message)


def read_path(
    path: Path,
    columns: Columns | Mapping[str, str | Encoder] | Scheme | None = None,
    unknown_edges: str = "refuse",
    repeated: str = "last",
    *,
    undirected: bool = False,
    names: Mapping[str, Any] | None = None,
) -> Graph:
    """Return the graph of a file or folder, edges as listed; other arguments as in ``load``.

    names: the user's names of columns, by ours.
    """
    path = path.expanduser()
    if path.is_dir() and not is_graph_folder(path):
        scheme_or_choices = columns if isinstance(columns, Scheme) else columns_of(columns)
        options = {"unknown_edges": unknown_edges, "repeated": repeated}
        return read_table_folder(
            path, scheme_or_choices, undirected=undirected, names=names or {}, **options
        )
    _check_file(path, names or {})
    # The readers of files take ``repeated`` as well.
    checked = "last" if path.suffix in READERS else repeated
    check_no_columns(path, columns, unknown_edges, checked)
    if path.is_dir():  # an imported graph
        graph = open_graph_folder(path)
        about = read_facts(path).get("about", {})
        with naming(path):
            check_numbers(graph)
        if (columns_json := about.get("columns")) is not None:
            with suppress(ConfigurationError):  # a user-defined encoder may be missing
                graph = replace(graph, columns=Scheme.from_json(columns_json))
        if about.get("dominant") is not None:  # the import's warning about its features
            say(path, about["dominant"])
        return replace(graph, class_names=tuple(about.get("class_names", ())))
    return READERS[path.suffix](path, repeated=repeated)


def check_source(source: str, /, **parameters: Any) -> None:
    """Raise unless there is a dataset of this name, or a file or folder; nothing is read."""
    path = Path(source).expanduser()
    if is_registered(source):
        datasets.make(source, **parameters)
    elif not looks_like_path(source):
        raise UnknownNameError("dataset, and no file or folder, called", source, datasets.names())
    elif not path.is_dir() or is_graph_folder(
        path
    ):  # reading a folder of tables gives better errors
        _check_file(path, parameters)


def _check_file(path: Path, parameters: Mapping[str, Any]) -> None:
    """Raise unless a path can be read as a file, or as an imported graph, without parameters."""
    for name in parameters:
        raise ConfigurationError(
            f"parameter {name!r} was given with the path {path}, which takes none"
        )
    if path.is_dir():
        return
    if not path.exists():
        raise DataError(f"no such file or folder: {path}")
    if path.suffix not in READERS:
        hint = ""
        if path.name.endswith(SUFFIXES):
            hint = "; tables with other names become a graph with evergraph import"
        raise DataError(
            f"{path}: the suffix {path.suffix!r} is not supported: expected {' or '.join(READERS)}, "
            f"or a folder with nodes and edges as .csv or .parquet{hint}"
        )


def is_registered(name: str) -> bool:
    """Whether a dataset has this name or alias."""
    try:
        datasets.resolve(name)
    except UnknownNameError:
        return False
    return True


def say_hidden(name: str) -> None:
    """Warn if a dataset is loaded while a file or folder here has its name."""
    if Path(name).exists():
        say(name, f"the dataset of this name is loaded; for what is in this folder, write ./{name}")


def looks_like_path(text: str) -> bool:
    """Whether a string that is not a dataset's name is meant as a path.

    >>> looks_like_path("graphs/mine.npz"), looks_like_path("mine.npz"), looks_like_path("cora")
    (True, True, False)
    """
    path = Path(text)
    return len(path.parts) > 1 or "/" in text or bool(path.suffix) or path.exists()
