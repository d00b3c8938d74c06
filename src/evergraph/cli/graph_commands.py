"""``evergraph import`` and ``embed``: graph folders from tables, and from embeddings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from evergraph.cli import inputs, options
from evergraph.cli.inputs import parse_columns, tables_of
from evergraph.cli.options import argument, option, parse_settings, renamed, resources_of
from evergraph.cli.output import print_json, print_table, stops_with
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.tables.sources import Source


def import_command(
    edges: str | None = argument(
        "A .csv, .csv.gz or .parquet with source, target (default: see --from).", default=None
    ),
    nodes: str | None = argument(
        "The same with id, features, optional label and time (default: see --from).", default=None
    ),
    database: inputs.Database = None,
    nodes_query: str | None = option(
        "With --from, the query for nodes (default: none).", "--nodes"
    ),
    edges_query: str | None = option(
        "With --from, the query for edges (default: none).", "--edges"
    ),
    out: Path = option("The folder to create.", default=...),
    directed: options.Directed = False,
    memory_limit: options.MemoryLimit = None,
    overwrite: options.Overwrite = False,
    unknown_edges: inputs.UnknownEdges = "refuse",
    delimiter: inputs.Delimiter = ",",
    decimal: inputs.Decimal = ".",
    columns: inputs.ColumnKinds = [],
    gaps: inputs.Gaps = "flag",
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Convert tables of any size into a graph folder.

    Parquet files may be in object storage, with a URL such as s3://BUCKET/edges.parquet. The
    result is used like any other graph. A stopped import continues when the same command is run
    again.
    """
    with stops_with("run the same command again to continue"):
        load_plugins(plugins)
        if database is None:
            if edges is None or nodes is None or edges_query or nodes_query:
                raise ConfigurationError(
                    "import needs a file of edges and one of nodes, or --from with --nodes and "
                    "--edges"
                )
        elif edges is not None or not nodes_query or not edges_query:
            raise ConfigurationError("--from needs the queries --nodes and --edges, without files")
        else:
            edges, nodes = edges_query, nodes_query
        tables = tables_of(edges, nodes, database=database, delimiter=delimiter, decimal=decimal)
        of_edges, of_nodes = (cast("Source", table) for table in tables)  # both are given
        units = ["rows" if t.suffix == ".parquet" else "bytes" for t in (of_edges, of_nodes)]
        resources = resources_of(memory_limit, None)
        with spinner("loading torch"):
            from evergraph.datasets.importing.importing import import_graph
        with StageProgress({"nodes": units[1], "edges": units[0]}) as progress:
            report = import_graph(
                of_edges,
                of_nodes,
                out,
                undirected=not directed,
                resources=resources(),
                on_progress=progress.on_progress,
                overwrite=overwrite,
                columns=parse_columns(columns, gaps=gaps, strict=False),
                unknown_edges=unknown_edges,
            )
    if as_json:
        print_json(asdict(report))
        return
    facts = asdict(report) | {"seconds": f"{report.seconds:.1f}"}
    new, encoded = facts.pop("new"), facts.pop("columns")
    if encoded:
        rows = [tuple(row.values()) for row in encoded]
        print_table(tuple(encoded[0]), rows, "columns of nodes")
    counts = [
        (name, f"{value:,}" if isinstance(value, int) else value)
        for name, value in facts.items()
        if name != "unknown_edges" or value
    ]
    print_table(("fact", "value"), counts, f"{out}" if new else f"{out}, which already existed")
    typer.echo(f"show it with: evergraph info {out}; use it with: evergraph run --dataset {out}")


def embed_command(
    dataset: str = argument("A name, or the path of a graph."),
    out: Path = option("The folder to create.", default=...),
    topology: str = option("f_topo; one that treats each column separately.", default="sgc"),
    hops: int = option("L, the hops that an embedding covers.", default=2),
    nodes: str = option("all, or labelled: only labelled nodes, without edges.", default="all"),
    dtype: str | None = option("Number format: float32, float16 or bfloat16 (default: float32)."),
    rows: Annotated[str | None, typer.Option(hidden=True)] = None,
    settings: list[str] = option(
        "Settings of f_topo, such as topology.alpha=0.2.", "--set", default=[], metavar="KEY=VALUE"
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
    """Write a graph's topology embeddings as a new graph folder.

    The result is used like any other graph: evergraph run --dataset FOLDER. Embeddings are computed
    on the whole graph, so edges to nodes of later tasks count from the first task on; a run that
    embeds each task separately does not see these. With --nodes labelled no edges are left, and a
    run uses only the embeddings. A stopped command continues when it is run again.
    """
    resources = resources_of(memory_limit, None, engine, address, worker_threads)
    given = parse_settings(settings)
    if others := given.keys() - {"topology"}:
        named = min(others)
        raise ConfigurationError(f"--set must begin with topology. for embed, not with {named!r}")
    chosen = dict(given.get("topology", {})) | {"name": topology, "hops": hops}
    dtype = renamed("--rows", rows, "--dtype", dtype)
    # Some f_topo do not take it.
    chosen |= {} if dtype in (None, "float32") else {"dtype": dtype}
    with stops_with("run the same command again to continue"):
        with spinner(f"loading torch and {dataset}"):
            from evergraph.datasets import load
            from evergraph.graphs.graph_folder import open_graph_folder
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
                nodes=cast("Any", nodes),
                name=dataset,
                resources=able,
                on_progress=progress.on_progress,
                overwrite=overwrite,
            )
    made = open_graph_folder(out)
    if as_json:
        size = {"nodes": made.num_nodes, "width": made.num_features}
        print_json({"folder": str(out), "new": new, **size})
        return
    done = "" if new else ", which already existed"
    typer.echo(f"{made.num_nodes:,} embeddings of width {made.num_features:,} in {out}{done}")
    typer.echo(f"use them with: evergraph run --dataset {out}")
