"""``evergraph import``: a graph folder from tables of any size, in files or in a database."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli import inputs, options
from evergraph.cli.inputs import parse_columns, tables_of
from evergraph.cli.options import resources_of
from evergraph.cli.output import print_json, print_table
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable

    from evergraph.datasets.importing.progress import ImportReport
    from evergraph.tables import Columns
    from evergraph.tables.sources import Source


def import_command(
    edges: str | None = typer.Argument(
        None, help="A .csv, .csv.gz or .parquet with source, target (default: see --from)."
    ),
    nodes: str | None = typer.Argument(
        None, help="The same with id, label, time if known, features (default: see --from)."
    ),
    database: inputs.Database = None,
    nodes_query: str | None = typer.Option(
        None, "--nodes", help="With --from, the query for nodes (default: none)."
    ),
    edges_query: str | None = typer.Option(
        None, "--edges", help="With --from, the query for edges (default: none)."
    ),
    out: Path = typer.Option(..., help="The folder to create."),
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
    """Convert tables into a graph folder that may be larger than memory.

    Parquet files may lie in object storage, at an address such as s3://BUCKET/edges.parquet. The
    result is used like any other graph. An import that was stopped or killed continues when
    the same command is given again.
    """
    try:
        load_plugins(plugins)
        chosen = partial(parse_columns, columns, gaps=gaps, strict=False)
        named = _named(edges, nodes, database, edges_query, nodes_query)
        tables = tables_of(*named, database=database, delimiter=delimiter, decimal=decimal)
        report = _import(tables, out, directed, memory_limit, overwrite, chosen, unknown_edges)
    except KeyboardInterrupt:
        typer.echo("interrupted: give the same command again to go on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(asdict(report))
    else:
        _print_report(report, out)


def _named(
    edges: str | None,
    nodes: str | None,
    database: str | None,
    edges_query: str | None,
    nodes_query: str | None,
) -> tuple[str, str]:
    """Return how edges and nodes are named: by two files, or by two queries to a database."""
    if database is None:
        if edges is None or nodes is None or edges_query or nodes_query:
            raise ConfigurationError(
                "import needs a file of edges and one of nodes, or --from with --nodes and --edges"
            )
        return edges, nodes
    if edges is not None or not nodes_query or not edges_query:
        raise ConfigurationError("--from needs the queries --nodes and --edges, and no files")
    return edges_query, nodes_query


def _import(
    tables: list[Source | None],
    out: Path,
    directed: bool,
    memory_limit: str | None,
    overwrite: bool,
    chosen: Callable[[], Columns],
    unknown_edges: str,
) -> ImportReport:
    edges, nodes = tables
    assert edges is not None
    assert nodes is not None
    resources = resources_of(memory_limit, None)
    with spinner("loading torch"):
        from evergraph.datasets.importing.importing import import_graph
    with StageProgress({"nodes": _unit(nodes), "edges": _unit(edges)}) as progress:
        return import_graph(
            edges,
            nodes,
            out,
            undirected=not directed,
            resources=resources(),
            on_progress=progress.on_progress,
            overwrite=overwrite,
            columns=chosen(),
            unknown_edges=unknown_edges,
        )


def _unit(path: Source) -> str:
    return "rows" if path.suffix == ".parquet" else "bytes"


def _print_report(report: ImportReport, out: Path) -> None:
    facts = asdict(report) | {"seconds": f"{report.seconds:.1f}"}
    new, columns = facts.pop("new"), facts.pop("columns")
    facts = {name: value for name, value in facts.items() if name != "unknown_edges" or value}
    if columns:
        rows = [tuple(row.values()) for row in columns]
        print_table(tuple(columns[0]), rows, "columns of nodes")
    counts = [
        (name, f"{value:,}" if isinstance(value, int) else value) for name, value in facts.items()
    ]
    print_table(("fact", "value"), counts, f"{out}" if new else f"{out}, which was there already")
    typer.echo(
        f"see it with: evergraph info {out}; learn on it with: evergraph run --dataset {out}"
    )
