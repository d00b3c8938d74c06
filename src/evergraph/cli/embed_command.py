"""``evergraph embed``: embeddings as a graph folder, computed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli import options
from evergraph.cli.options import parse_settings, resources_of
from evergraph.cli.output import print_json
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.core.resources import Resources


def embed_command(
    dataset: str = typer.Argument(..., help="A name, or the path of a graph."),
    out: Path = typer.Option(..., help="The folder to create."),
    topology: str = typer.Option("sgc", help="f_topo, one whose columns do not mix."),
    hops: int = typer.Option(2, help="L, how far an embedding looks."),
    nodes: str = typer.Option(
        "all", help="all, or labelled: only nodes that have labels, and no edges."
    ),
    rows: str = typer.Option("float32", help="What is summed: float32, float16 or bfloat16."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Of the f_topo, such as topology.alpha=0.2."
    ),
    directed: options.Directed = False,
    memory_limit: options.MemoryLimit = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    worker_threads: options.WorkerThreads = None,
    overwrite: options.Overwrite = False,
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Write a graph's topology embeddings as a graph folder, whose features they are.

    The result is used like any other graph: evergraph run --dataset FOLDER. Embeddings are made on
    the whole graph: edges to nodes of later tasks count from the first task on, which a run that
    embeds each task by itself does not see. With --nodes labelled no edges are left, and a run
    sees what is in the embeddings alone. Stopped or killed, it goes on when the same command is
    given again.
    """
    resources = resources_of(memory_limit, None, engine, address, worker_threads)
    chosen = _parameters(settings) | {"name": topology, "hops": hops}
    chosen |= {} if rows == "float32" else {"rows": rows}  # of which some f_topo know nothing
    try:
        report = _embed(dataset, out, chosen, nodes, directed, overwrite, plugins, resources)
    except KeyboardInterrupt:
        typer.echo("interrupted: give the same command again to go on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(report)
        return
    done = "" if report["new"] else ", which was there already"
    typer.echo(f"{report['nodes']:,} embeddings of width {report['width']:,} in {out}{done}")
    typer.echo(f"learn on them with: evergraph run --dataset {out}")


def _parameters(settings: list[str]) -> dict[str, Any]:
    found = parse_settings(settings)
    if found.keys() - {"topology"}:
        name = min(found.keys() - {"topology"})
        raise ConfigurationError(f"--set must begin with topology. here, not with {name!r}")
    return dict(found.get("topology", {}))


def _embed(
    dataset: str,
    out: Path,
    chosen: dict[str, Any],
    nodes: Any,
    directed: bool,
    overwrite: bool,
    plugins: list[str],
    resources: Callable[[], Resources],
) -> dict[str, Any]:
    with spinner(f"loading torch and {dataset}"):
        from evergraph.datasets import load
        from evergraph.topology import topologies
        from evergraph.topology.embedding_folder import check_separable, embed

        load_plugins(plugins)
        encoder = topologies.make(**chosen)
        check_separable(encoder)  # before anything is read
        graph = load(dataset, undirected=not directed)
        able = resources()
    with StageProgress({"embed": "columns"}) as progress:
        new = embed(
            graph,
            out,
            topology=encoder,
            nodes=nodes,
            name=dataset,
            resources=able,
            on_progress=progress.on_progress,
            overwrite=overwrite,
        )
    return {"folder": str(out), "new": new, **_size(out)}


def _size(out: Path) -> dict[str, int]:
    from evergraph.graphs.graph_folder import open_graph_folder

    graph = open_graph_folder(out)
    return {"nodes": graph.num_nodes, "width": graph.num_features}
