"""Whatever holds a graph, as a ``Graph``: the one door that all others lead through.

Recognised by their classes, so that no library is imported that the caller does not use: PyG's
``Data`` and ``HeteroData``, graphs of NetworkX, sparse matrices of SciPy, and tables of nodes and
edges of pandas, Polars and Arrow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.datasets.doors.from_networkx import from_networkx
from evergraph.datasets.doors.from_scipy import from_scipy
from evergraph.datasets.doors.from_tables import from_tables
from evergraph.datasets.doors.named import NamedGraph
from evergraph.datasets.doors.recognising import is_networkx, is_pyg, is_sparse, is_table
from evergraph.graphs import Graph

KINDS = (
    "a Graph, PyG's Data or HeteroData, a NetworkX graph, a SciPy sparse matrix or a pair of "
    "tables (nodes, edges)"
)


def as_graph(source: Any, *, undirected: bool = False, **options: Any) -> Graph:
    """Return the graph that an object is or holds; see ``named_graph`` for what it may be.

    A ``Graph`` comes back as it is, in no time.

    >>> import networkx as nx
    >>> as_graph(nx.path_graph(3))
    Graph(nodes=3, edges=4, features=0, classes=0)
    """
    if isinstance(source, Graph) and not options:
        return source.to_undirected() if undirected else source
    return named_graph(source, undirected=undirected, **options).graph


def named_graph(source: Any, *, undirected: bool = False, **options: Any) -> NamedGraph:
    """Return the graph that an object holds, with the names of its nodes and classes.

    Args:
        source: a ``Graph``; PyG's ``Data`` or ``HeteroData``; a graph of NetworkX; a sparse
            adjacency matrix of SciPy, or the tuple (adjacency, features, labels); a table of nodes
            with ``edges=``, or the tuple (nodes, edges), of pandas, Polars or Arrow.
        undirected: whether every edge is to run both ways.
        options: ``features`` and ``labels`` beside NetworkX (names of attributes) and SciPy (a
            matrix, one label a node), ``edges`` beside a table of nodes, and ``columns``, how its
            features are read where it is not to be guessed, and ``unknown_edges``, as in ``load``.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": [7, 9], "label": ["x", "y"], "size": [1.0, 2.0]})
    >>> named_graph(nodes, edges=pd.DataFrame({"source": [7], "target": [9]})).ids
    [7, 9]
    """
    source, options = _unpacked(source, options)
    doors = (
        (is_networkx, from_networkx, ("features", "labels")),
        (is_sparse, from_scipy, ("features", "labels")),
        (is_table, from_tables, ("edges", "columns", "unknown_edges")),
        (lambda held: isinstance(held, Graph), _from_graph, ()),
        (is_pyg, _from_pyg, ()),
    )
    for recognised, door, taken in doors:
        if recognised(source):
            _check(source, options, taken)
            named = door(source, undirected=undirected, **options)
            called = tuple(named.classes or ())
            return replace(named, graph=replace(named.graph, class_names=called))
    raise ConfigurationError(f"a graph must be {KINDS}, not {type(source).__name__}")


def holds_graph(source: Any) -> bool:
    """Whether an object is more than a list: something that ``as_graph`` takes.

    >>> holds_graph(["a", "b"]), holds_graph(())
    (False, False)
    """
    source = source[0] if isinstance(source, tuple) and source else source
    doors = (is_networkx, is_sparse, is_table, is_pyg)
    return isinstance(source, Graph) or any(recognised(source) for recognised in doors)


def _unpacked(source: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what a tuple begins with, and the rest of it under its names."""
    if not isinstance(source, tuple) or not source:
        return source, options
    first, *rest = source
    names = ("edges",) if is_table(first) else ("features", "labels") if is_sparse(first) else ()
    if len(rest) > len(names):
        raise ConfigurationError(
            f"a graph must be {KINDS}, not a tuple of {len(source)} that begins with "
            f"{type(first).__name__}"
        )
    return first, dict(zip(names, rest, strict=False)) | options


def _check(source: Any, options: dict[str, Any], taken: tuple[str, ...]) -> None:
    kind = type(source).__name__
    for name in options:
        if name not in taken:
            offer = f"only {' and '.join(taken)}" if taken else "nothing"
            raise ConfigurationError(f"{kind} takes {offer} beside itself, not {name!r}")
    if "edges" in taken and "edges" not in options:
        raise ConfigurationError(f"{kind} of nodes needs its edges: give the pair (nodes, edges)")


def _from_graph(source: Graph, *, undirected: bool) -> NamedGraph:
    graph = source.to_undirected() if undirected else source
    return NamedGraph(graph, classes=graph.class_names or None)


def _from_pyg(source: Any, *, undirected: bool) -> NamedGraph:
    return NamedGraph(Graph.from_data(source, undirected=undirected))
