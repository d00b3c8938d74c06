"""``evergraph info``: what is in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.options import PLUGINS
from evergraph.cli.output import print_json, print_table
from evergraph.cli.progress import spinner
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.graphs import Graph


def info_command(
    dataset: str = typer.Argument(..., help="A dataset's name, or the path of a graph."),
    classes_per_task: int = typer.Option(2, help="Classes that arrive together."),
    verify: bool = typer.Option(
        False, "--verify", help="Read an imported graph completely and compare checksums."
    ),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Show a graph's nodes, edges, features, classes, homophily and tasks.

    Edges are counted as listed and with every edge running both ways, as a run sees them unless
    it is told --directed; homophily likewise.
    """
    if verify:
        with spinner(f"verifying {dataset}"):
            _verify(Path(dataset))
    with spinner(f"loading {dataset}"):
        load_plugins(plugins)
        facts = _facts(dataset, classes_per_task)
    if as_json:
        print_json(facts)
        return
    sizes = facts.pop("class_sizes")
    print_table(("fact", "value"), [(name, _shown(value)) for name, value in facts.items()])
    rows = [(label, f"{size:,}") for label, size in sizes.items()]
    print_table(("target" if "targets" in facts else "class", "nodes"), rows)


def _verify(folder: Path) -> None:
    from evergraph.core.errors import ConfigurationError
    from evergraph.graphs.graph_folder import is_graph_folder, open_graph_folder

    if not is_graph_folder(folder):
        raise ConfigurationError(f"--verify takes a graph made by evergraph import, not {folder}")
    open_graph_folder(folder, verify=True)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _weights(graph: Graph) -> str:
    if graph.weights is None or not graph.num_edges:
        return "none"
    return f"{float(graph.weights.min()):g} to {float(graph.weights.max()):g}"


def _more_of_edges(graph: Graph) -> dict[str, str]:
    """Return what edges and nodes have besides their ends and features."""
    return {
        "edge_weights": _weights(graph),
        "relations": _named(() if graph.relations is None else graph.relations.names),
        "types_of_nodes": _named(() if graph.types is None else graph.types.names),
    }


def _named(names: Sequence[str]) -> str:
    """Return how many names there are, and the first of them.

    >>> _named(["cites", "writes"]), _named([])
    ('2: cites, writes', 'none')
    """
    if not names:
        return "none"
    return f"{len(names)}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"


def _facts_of_targets(dataset: str, graph: Graph, both_ways: int) -> dict[str, Any]:
    """Return the facts of a graph that has several labels or numbers a node, and no classes."""
    assert graph.targets is not None
    known = graph.targets.known.sum(0).tolist()
    having = (graph.targets.values == 1).sum(0).tolist()
    counts = having if graph.targets.kind == "labels" else known
    return {
        "dataset": dataset,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "edges_both_ways": both_ways,
        **_more_of_edges(graph),
        "features": graph.num_features,
        "targets": graph.targets.kind,
        "unknown_nodes": int((~graph.targets.known.any(1)).sum()),
        "class_sizes": dict(zip(graph.targets.names, counts, strict=True)),
    }


def _facts(dataset: str, classes_per_task: int) -> dict[str, Any]:
    import torch

    from evergraph.datasets.loading import load_outline
    from evergraph.graphs import homophily
    from evergraph.streams.class_order import arrange_classes, group_classes

    graph = load_outline(dataset)
    both_ways = graph.to_undirected()
    if graph.targets is not None:
        return _facts_of_targets(dataset, graph, both_ways.num_edges)
    sizes = torch.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    called = graph.class_names or map(str, range(len(sizes)))
    return {
        "dataset": dataset,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "edges_both_ways": both_ways.num_edges,
        **_more_of_edges(graph),
        "features": graph.num_features,
        "classes": graph.num_classes,
        "unlabelled_nodes": int((graph.labels < 0).sum()),
        "homophily": round(homophily(both_ways), 4),
        "homophily_as_listed": round(homophily(graph), 4),
        "tasks": len(group_classes(arrange_classes(sizes), classes_per_task)),  # maybe none
        "classes_per_task": classes_per_task,
        "class_sizes": dict(zip(called, sizes.tolist(), strict=True)),
    }
