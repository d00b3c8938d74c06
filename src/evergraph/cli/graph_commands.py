"""``evergraph import``, ``embed``, ``info`` and ``list``: make and describe graphs, list parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from evergraph.cli import inputs, options
from evergraph.cli.inputs import ColumnOptions, TableOptions, parse_columns, with_shared_options
from evergraph.cli.learner_target import is_learner
from evergraph.cli.options import argument, flag, option, parse_settings, resources_of
from evergraph.cli.output import StageProgress, print_json, print_table, spinner, stops_with
from evergraph.cli.results_commands import show_learner
from evergraph.core.component import declared_parts
from evergraph.core.errors import ConfigurationError, check_choice
from evergraph.core.packages import installed_plugins, load_plugins, tomllib

if TYPE_CHECKING:
    from evergraph.core.component import Resolver
    from evergraph.tables.sources import Source

# The resolver of each kind, the package that defines it, and another that registers with it.
_RESOLVERS: dict[str, tuple[str, ...]] = {
    "datasets": ("datasets", "datasets"),
    "methods": ("methods", "methods"),
    "topologies": ("topologies", "topology"),
    "samplers": ("samplers", "memory.samplers"),
    "backbones": ("backbones", "nn", "closed_form"),
}
KINDS = (*_RESOLVERS, "presets", "protocols", "benches")
# Optional fields of a dataset in the catalogue.
_UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("kept_edges", "homophily", "terms", "paper", "labelled")),
    "urls": [],
    "download": 0,
    "room": 0,
    "sha256": {},
}


@with_shared_options
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
    repeated: inputs.Repeated = None,
    pipe: inputs.Format = None,
    written: TableOptions = TableOptions(),
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
        tables = written.tables(nodes, edges, database=database, pipe=pipe)
        node_table, edge_table = (cast("Source", table) for table in tables)  # both are given
        units = ["rows" if t.suffix == ".parquet" else "bytes" for t in (edge_table, node_table)]
        resources = resources_of(memory_limit, None)
        with spinner("loading torch"):
            from evergraph.datasets.importing.importing import import_graph
        with StageProgress({"nodes": units[1], "edges": units[0]}) as progress:
            column_choices = parse_columns(columns, gaps=gaps, strict=False)
            report = import_graph(
                edge_table,
                node_table,
                out,
                undirected=not directed,
                resources=resources(),
                on_progress=progress.on_progress,
                overwrite=overwrite,
                columns=column_choices,
                unknown_edges=unknown_edges,
                repeated=repeated or "last",
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
        if value or name not in ("unknown_edges", "repeats")
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
    parameters = parse_settings(settings)
    if others := parameters.keys() - {"topology"}:
        first_other = min(others)
        raise ConfigurationError(
            f"--set must begin with topology. for embed, not with {first_other!r}"
        )
    topology_parameters = dict(parameters.get("topology", {})) | {"name": topology, "hops": hops}
    # Some f_topo do not take it.
    topology_parameters |= {} if dtype in (None, "float32") else {"dtype": dtype}
    with stops_with("run the same command again to continue"):
        with spinner(f"loading torch and {dataset}"):
            from evergraph.datasets import load
            from evergraph.graphs.graph_folder import open_graph_folder
            from evergraph.topology import topologies
            from evergraph.topology.embedding_folder import check_separable, embed

            load_plugins(plugins)
            encoder = topologies.make(**topology_parameters)
            check_separable(encoder)  # before anything is read
            graph = load(dataset, undirected=not directed)
            made_resources = resources()
        with StageProgress({"embed": "columns"}) as progress:
            new = embed(
                graph,
                out,
                topology=encoder,
                nodes=cast("Any", nodes),
                name=dataset,
                resources=made_resources,
                on_progress=progress.on_progress,
                overwrite=overwrite,
            )
    embedded = open_graph_folder(out)
    if as_json:
        size = {"nodes": embedded.num_nodes, "width": embedded.num_features}
        print_json({"folder": str(out), "new": new, **size})
        return
    suffix = "" if new else ", which already existed"
    typer.echo(
        f"{embedded.num_nodes:,} embeddings of width {embedded.num_features:,} in {out}{suffix}"
    )
    typer.echo(f"use them with: evergraph run --dataset {out}")


def list_command(
    kind: str | None = argument(
        f"What to list: {', '.join(KINDS)} (default: count each kind).", default=None
    ),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """List methods, datasets and other components by name."""
    if kind is not None:
        check_choice("kind", kind, KINDS)
    load_plugins(plugins)
    if kind is None:
        listing: dict[str, Any] = {known: len(_summaries(known)) for known in KINDS}
        columns: Sequence[str] = ("kind", "count", "list them with")
        rows = [[name, str(number), f"evergraph list {name}"] for name, number in listing.items()]
    elif kind == "datasets":
        # The catalogue itself: its reader in evergraph.datasets imports torch.
        text = resources.files("evergraph").joinpath("datasets/catalogue.toml").read_text("utf-8")
        known = {name: _UNKNOWN | facts for name, facts in tomllib.loads(text).items()}
        facts = {n: known.get(n, {"title": line}) for n, line in _summaries(kind).items()}
        shown = ("nodes", "edges", "features", "classes", "tasks", "title")
        rows = [[n, *(_cell(fact.get(column)) for column in shown)] for n, fact in facts.items()]
        listing, columns = {kind: facts}, ("name", *shown[:-1], "description")
    else:
        listing, columns = {kind: _summaries(kind)}, ("name", "description")
        rows = [[name, line.replace("``", "")] for name, line in listing[kind].items()]
    if as_json:
        print_json(listing)
    else:
        print_table(columns, rows)


def _summaries(kind: str) -> dict[str, str]:
    """Return components with their first lines, read from the source of a package if possible.

    If the package is not imported, neither a program nor a plug-in can have registered others.
    """
    if kind not in _RESOLVERS:
        from evergraph.experiments.presets import benches, presets, protocols, summary

        files: Mapping[str, Path] = benches() if kind == "benches" else protocols()
        files = presets() if kind == "presets" else files
        return {name: summary(name, path) for name, path in files.items()}
    attribute, *packages = _RESOLVERS[kind]
    declared: dict[str, str] = {}
    for package in packages:
        declared |= declared_parts(package.replace(".", "/"), attribute)
    names = [f"evergraph.{package}" for package in packages]
    if names[0] in sys.modules or not declared or installed_plugins():
        modules = [import_module(name) for name in names]
        registered: Resolver[Any] = getattr(modules[0], attribute)
        return registered.summaries()
    return dict(sorted(declared.items()))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


@with_shared_options
def info_command(
    dataset: str = argument("A dataset's name, or the path of a graph or of a learner."),
    classes_per_task: int = option("Classes per task.", default=2),
    verify: bool = flag("--verify", "Read an imported graph completely and compare checksums."),
    repeated: inputs.Repeated = None,
    columns: ColumnOptions = ColumnOptions(),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Show a graph's size, features, classes, homophily and tasks, or what a learner has learned.

    Edges and homophily are given twice: as listed, and with every edge in both directions, which
    is what a run uses unless --directed is given.
    """
    if is_learner(Path(dataset)):
        load_plugins(plugins)
        show_learner(Path(dataset), as_json)
        return
    if verify:
        with spinner(f"verifying {dataset}"):
            from evergraph.graphs.graph_folder import is_graph_folder, open_graph_folder

            if not is_graph_folder(Path(dataset)):
                message = f"--verify needs a graph made by evergraph import, not {dataset}"
                raise ConfigurationError(message)
            open_graph_folder(Path(dataset), verify=True)
    with spinner(f"loading {dataset}"):
        load_plugins(plugins)
        names = columns.names
        how = {"repeated": "last" if repeated is None else repeated} | names
        facts = _bundled_facts(dataset, classes_per_task) or _facts(dataset, classes_per_task, how)
    if as_json:
        print_json(facts)
        return
    sizes = facts.pop("class_sizes")
    rows_of_facts = [(name.replace("_", " "), _cell(value)) for name, value in facts.items()]
    print_table(("fact", "value"), rows_of_facts)
    rows = [(label, f"{size:,}") for label, size in sizes.items()]
    print_table(("target" if "targets" in facts else "class", "nodes"), rows)


def _count_and_names(names: Sequence[str]) -> str:
    """Return the number of names, and the first ones.

    >>> _count_and_names(["cites", "writes"]), _count_and_names([])
    ('2: cites, writes', 'none')
    """
    if not names:
        return "none"
    return f"{len(names)}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"


def _bundled_facts(dataset: str, classes_per_task: int) -> dict[str, Any] | None:
    """Return what is known of the bundled graph, None where it must be counted.

    It never changes, and counting it takes torch, which is most of what the command would cost.
    A program or plug-in may have registered another dataset of that name: see ``_summaries``. To
    record it again: ``python -c "import evergraph.datasets; from evergraph.cli.app import main;
    main()" info wordnet --json``.
    """
    if dataset != "wordnet" or classes_per_task != 2:
        return None
    if "evergraph.datasets" in sys.modules or installed_plugins():
        return None
    file = resources.files("evergraph").joinpath("datasets/bundled/wordnet.json")
    facts: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return facts


def _facts(dataset: str, classes_per_task: int, options: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from evergraph.datasets.loading import load_outline
    from evergraph.graphs import homophily
    from evergraph.streams.ways import arrange_classes, group_classes

    graph = load_outline(dataset, **options)
    both_ways, weights = graph.to_undirected(), "none"
    if graph.weights is not None and graph.num_edges:
        weights = f"{float(graph.weights.min()):g} to {float(graph.weights.max()):g}"
    facts = {
        "dataset": dataset,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "edges_both_ways": both_ways.num_edges,
        "edge_weights": weights,
        "relations": _count_and_names(() if graph.relations is None else graph.relations.names),
        "types_of_nodes": _count_and_names(() if graph.types is None else graph.types.names),
        "features": graph.num_features,
    }
    if graph.targets is not None:  # multi-label or numeric targets, and no classes
        counts = graph.targets.target.counts(graph.targets.values).tolist()
        return facts | {
            "targets": graph.targets.kind,
            "unknown_nodes": int((~graph.targets.known.any(1)).sum()),
            "class_sizes": dict(zip(graph.targets.names, counts, strict=True)),
        }
    sizes = torch.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    class_names = graph.class_names or map(str, range(len(sizes)))
    return facts | {
        "classes": graph.num_classes,
        "unlabelled_nodes": int((graph.labels < 0).sum()),
        "homophily": round(homophily(both_ways), 4),
        "homophily_as_listed": round(homophily(graph), 4),
        "tasks": len(group_classes(arrange_classes(sizes), classes_per_task)),  # may be 0
        "classes_per_task": classes_per_task,
        "class_sizes": dict(zip(class_names, sizes.tolist(), strict=True)),
    }
