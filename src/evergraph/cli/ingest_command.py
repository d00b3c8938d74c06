"""``evergraph ingest``: add tables of nodes and edges, or a stream of lines, to a learner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli import inputs, options
from evergraph.cli.inputs import (
    TableOptions,
    arriving_lines,
    parse_columns,
    read_ids,
    seconds_of,
    with_shared_options,
)
from evergraph.cli.learner_target import Access
from evergraph.cli.options import argument, flag, option
from evergraph.cli.output import StageProgress, print_json, print_table, spinner, stops_with
from evergraph.core.errors import ConfigurationError, check_choice, say
from evergraph.core.packages import load_plugins
from evergraph.server.client import is_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from evergraph.cli.learner_target import Target
    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.tables import Columns, Scheme
    from evergraph.tables.sources import Source

CHANGES = (  # other than additions: the count, what is counted, what happened to it
    ("changed_weights", "weight", "changed"),
    ("removed_edges", "edge", "removed"),
    ("updated_nodes", "node", "updated"),
    ("unknown_edges", "edge", "to unknown nodes skipped"),
)
STREAM_COUNTS = ("lines", "known", "deltas", "new_nodes", "predicted", "right")


@with_shared_options
def ingest_command(
    target: options.LearnerTarget,
    stream: str | None = argument(
        "- reads lines of JSON from standard input, or with --format a table of nodes (default: "
        "none).",
        default=None,
    ),
    nodes: str | None = option(
        "A .csv or .parquet with id, features, optional label and op; - for standard input "
        "(default: none)."
    ),
    edges: str | None = option(
        "A .csv or .parquet with source, target, optional weight and op (default: none)."
    ),
    database: inputs.Database = None,
    sync: bool = flag("--sync", "Delete what the tables do not contain."),
    allow_emptying: bool = flag("--allow-emptying", "With --sync: allow it to delete every node."),
    unknown_edges: inputs.UnknownEdges = "refuse",
    repeated: inputs.Repeated = None,
    forget: str | None = option(
        "File of ids to forget, or a column of --nodes that marks them (default: none)."
    ),
    batch: int = option("Nodes, or lines, per batch.", default=100),
    every: str = option("Longest time to wait before a batch of lines is sent.", default="2s"),
    key_prefix: str | None = option(
        "Name of the stream; each line counts once (default: from its first line)."
    ),
    integers: bool = flag("--integers", "Ids in a CSV are integers."),
    skip_known: bool = flag("--skip-known", "In a stream, skip what the learner already knows."),
    access: Access = Access(),
    pipe: inputs.Format = None,
    written: TableOptions = TableOptions(),
    columns: inputs.ColumnKinds = [],
    gaps: inputs.Gaps = "flag",
    strict: bool = flag("--strict", "Reject categories that the first table did not have."),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Add new nodes, edges and labels from tables.

    Rows are added in order. What the learner already knows is skipped, so a dump that has grown can
    be given again as a whole, and a stopped command continues when it is run again. A column op
    holds other changes: update or forget for nodes, remove for edges. With --from, --nodes and
    --edges are database queries.

    With --sync the learner is made equal to the tables: nodes missing from --nodes are forgotten,
    edges missing from --edges are removed, and features of known nodes are updated. A table that
    is not given changes nothing.

    With - each line of stdin is a JSON object: {"node": id, "features": [..], "label": ..,
    "type": ..}, or columns in place of features; {"edge": [id, id], "weight": .., "relation": ..},
    {"remove_edge": [id, id]}, {"update": id, "features": [..]},
    {"label": [id, label]} or {"forget": id}. The same stream given again continues where it ended.
    """
    column_choices = partial(parse_columns, columns, gaps=gaps, strict=strict)
    learner, rule = _Receiver(target, access, column_choices), repeated or "last"
    if stream == "-" and pipe is not None and nodes is None:
        stream, nodes = None, "-"
    if stream is not None:
        if stream != "-" or sync or any(value is not None for value in (nodes, edges, forget)):
            message = "tables are given by --nodes and --edges, and a stream by - alone"
            raise ConfigurationError(f"{message}, not {stream!r}")
        stream_options: dict[str, Any] = {
            "batch": batch,
            "every": seconds_of(every),
            "prefix": key_prefix,
        }
        load_plugins(plugins)
        names = written.names
        if others := names.keys() - {"label", "weight"}:
            raise ConfigurationError(f"--{min(others)} names a column of tables, not of lines")
        stream_options |= {"skip_known": skip_known, "repeated": rule, "names": names}
        _ingest_stream(learner, stream_options, as_json)
        return
    with stops_with("run the same command again to continue"):
        load_plugins(plugins)
        tables: tuple[Source | None, Source | None] = (None, None)
        if nodes or edges:
            tables = written.tables(nodes, edges, database=database, pipe=pipe)
        check_choice("--unknown-edges", unknown_edges, ("refuse", "skip"))
        if allow_emptying and not sync:
            raise ConfigurationError("--allow-emptying needs --sync")
        if tables == (None, None) and (sync or forget is None):
            needed = "ingest needs --nodes, --edges, --forget or a stream -, and none is given"
            raise ConfigurationError("--sync needs --nodes, --edges or both" if sync else needed)
        to_forget: str | list[str | int] = [] if forget is None else forget
        if forget is not None and Path(forget).is_file():
            to_forget = read_ids(forget, integers=integers)
        reading = {"forget": to_forget, "batch": batch, "integers": integers}
        emptying = allow_emptying if sync else None
        edges_as: dict[str, Any] = {"skip_unknown": unknown_edges == "skip", "repeated": rule}
        counts, fixed_columns = _ingest(learner, tables, reading, emptying, **edges_as)
    if counts["other_features"]:
        sentence = f"the features of {_counted(counts['other_features'], 'known node')} were kept"
        say(tables[0], f"{sentence}: to change them, put 'update' in a column 'op'")
    node_table, edge_table = tables
    for table, what, change in ((edge_table, "edge", "remove"), (node_table, "node", "update")):
        if missing := counts[f"missing_{what}s"]:
            say(table, f"{_counted(missing, what)} to {change} not found in the learner")
    if as_json:
        print_json(counts)
    else:
        if fixed_columns:  # later tables are read alike
            rows = [tuple(row.values()) for row in counts["columns"]]
            print_table(tuple(counts["columns"][0]), rows, f"{tables[0]}")
        typer.echo(_summary(counts))


@dataclass(frozen=True)
class _Receiver:
    """The learner that receives data."""

    target: str
    access: Access
    chosen: Callable[[], Columns]  # parses the column options, which imports torch

    def opened(self, kind: str = "class") -> AbstractContextManager[Target]:
        """Open it for writing; kind: of its targets, if its folder does not exist yet."""
        from evergraph.core.targets import target_of

        parameters = None
        is_new = not is_url(self.target) and not Path(self.target).exists()
        if is_new and not target_of(kind).is_class:
            parameters = {"head": {"name": "targets", "kind": kind}}
        return self.access.open_or_create(self.target, "write", parameters)

    def columns(self) -> Columns | Scheme | None:
        """Return how columns are encoded; None for a learner of plain numbers."""
        from evergraph.online.folder.markers import check_chosen, columns_for

        choices = self.chosen()
        if not is_url(self.target):
            return columns_for(Path(self.target), choices)
        service = self.access.client(self.target, "read")
        scheme = service.columns(choices.encoders)
        if not service.status()["features"]:
            return choices
        check_chosen(self.target, scheme, choices)
        return scheme


def _ingest_stream(receiver: _Receiver, stream_options: dict[str, Any], as_json: bool) -> None:
    """Ingest standard input, and print a summary.  way: arguments of ``LineStream``"""
    with spinner("loading torch"):
        from evergraph.core.targets import target_kinds, target_of
        from evergraph.online.line_stream import LineStream

        stream_options["columns"] = receiver.columns()
    with receiver.opened() as learner:
        status = learner.status()
        stream_options["kind"] = next(
            name
            for name in target_kinds.names()
            if target_of(name).running == status.get("metric", "accuracy")
        )
        stream = LineStream(learner, **stream_options, undirected=status["undirected"])
        with stops_with("send the same stream again to continue"):
            stream.take_in(arriving_lines())
        status = learner.status()
    counts = {name: getattr(stream, name) for name in STREAM_COUNTS}
    counts |= {name: status[name] for name in ("nodes", "edges", "classes")}
    if as_json:
        print_json(counts | {"key_prefix": stream.prefix})
    else:
        typer.echo(
            f"{_counted(counts['lines'], 'line')}, {counts['known']:,} known, in "
            f"{_counted(counts['deltas'], 'delta')}; the learner knows {_counted(counts['nodes'], 'node')} "
            f"and {_counted(counts['classes'], 'class')}"
        )


def _summary(counts: dict[str, Any]) -> str:
    ignored = f", ignored columns: {', '.join(counts['ignored'])}" if counts["ignored"] else ""
    accuracy, classes = "", _counted(counts["classes"], "class")
    if counts["predicted"]:
        share = f"{counts['right']:,} of {counts['predicted']:,}"
        accuracy = f", {share} predicted correctly before being learned"
    if "metric" in counts:
        measured = "none yet" if counts["accuracy"] is None else f"{counts['accuracy']:.4g}"
        accuracy = f", {counts['metric']} before being learned {measured}"
        numeric = counts["metric"] == "mean absolute error"
        classes = "their values" if numeric else _counted(counts["classes"], "label")
    parts = (
        _counted(counts["new_nodes"], "new node"),
        f"{_counted(counts['known_nodes'], 'known node')} skipped",
        _counted(counts["new_edges"], "new edge"),
        f"{_counted(counts['new_labels'], 'label')} added",
        f"{counts['changed_labels']:,} changed",
        *(f"{_counted(counts[name], what)} {how}" for name, what, how in CHANGES if counts[name]),
        f"{_counted(counts['forgotten'], 'node')} forgotten",
    )
    return (
        f"{', '.join(parts)}{ignored}; the learner knows {_counted(counts['nodes'], 'node')} and "
        f"{classes}{accuracy}"
    )


def _counted(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {what}{'es' if what.endswith('s') else 's'}"


def _as_featureless(
    deltas: TableDeltas, learner: Target, columns: Columns | Scheme | None
) -> TableDeltas:
    """Return the deltas as they are, or of nodes without features if the learner has no others."""
    width = learner.status()["features"]
    has_features = deltas.places["nodes"][0] is not None and not deltas.known
    if has_features or (width and (width > 1 or columns is not None)):
        return deltas
    from evergraph.online.checking import FEATURELESS

    if not width:
        say(deltas.places["nodes"][0] or deltas.places["edges"][0], FEATURELESS)
    return deltas.of_featureless(learner.knows_nodes)


def _ingest(
    receiver: _Receiver,
    tables: tuple[Source | None, Source | None],
    reading: dict[str, Any],
    emptying: bool | None,
    *,
    skip_unknown: bool,
    repeated: str,
) -> tuple[dict[str, Any], bool]:
    """Ingest tables; return counts, and whether the table of nodes decided how columns are read.

    reading: arguments of ``read_deltas``; emptying: whether a sync may delete everything, None
    where the learner is not synced; skip_unknown: drop edges to unknown nodes, and count them;
    repeated: for edges that the table lists several times.
    """
    with spinner("loading torch"):
        from evergraph.online.codecs.tables import read_deltas

        columns = receiver.columns()
        deltas = read_deltas(*tables, columns=columns, **reading)
    from evergraph.online.delta import is_empty
    from evergraph.online.upsert import News
    from evergraph.online.view.published import CHANCE
    from evergraph.tables.scheme import Scheme

    counts = dict.fromkeys(("predicted", "right", "unknown_edges", *asdict(News())), 0)
    with receiver.opened(deltas.kind) as learner, StageProgress({"ingest": "deltas"}) as progress:
        if not learner.status()["relations"]:
            deltas = deltas.without_relations()
        deltas = _as_featureless(deltas, learner, columns)
        if emptying is not None and tables[0] is not None:
            deltas = deltas.without_others(learner.every_id(), emptying=emptying)
        if emptying is not None and tables[1] is not None:
            deltas = deltas.without_other_edges(learner.edges_beyond, emptying=emptying)
        if skip_unknown:
            deltas, counts["unknown_edges"] = deltas.without_unknown_edges(learner.knows_nodes)
        learner.check(deltas)
        if tables[1] is not None:
            both_ways = learner.status()["undirected"]
            deltas = deltas.without_repeats(repeated, both_ways=both_ways)
        for done, delta in enumerate(deltas, start=1):
            if not is_empty(delta):
                reply = learner.upsert(delta)
                for name, count in reply["news"].items():
                    counts[name] += count
                for name in ("predicted", "right"):
                    counts[name] += reply[name]
            progress.on_progress("ingest", done, len(deltas))
        if emptying is not None:  # known and unchanged
            counts["known_nodes"] += len(deltas.whole.updated) - counts["updated_nodes"]
        status = learner.status()
        totals = {name: status[name] for name in ("nodes", "edges", "classes")}
        if status.get("metric", "accuracy") != "accuracy":
            totals |= {name: status[name] for name in ("metric", "accuracy")}
        if status.get("better_than_chance") is False:
            say(tables[0] or tables[1], CHANCE)
    scheme = deltas.whole.scheme
    fixed_columns = scheme is not None and not isinstance(columns, Scheme)
    column_rows = [] if scheme is None else scheme.rows()
    of_tables = {"deltas": len(deltas), "ignored": list(deltas.ignored), "columns": column_rows}
    return counts | totals | of_tables, fixed_columns
