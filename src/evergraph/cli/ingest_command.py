"""``evergraph ingest``: tables of nodes and edges, or a stream of lines, into a learner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli import inputs, options
from evergraph.cli.inputs import arriving_lines, parse_columns, read_ids, seconds_of, tables_of
from evergraph.cli.learner_target import opened
from evergraph.cli.output import print_json, print_table
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError
from evergraph.core.notices import say
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from evergraph.cli.learner_target import Target
    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.tables import Columns, Scheme
    from evergraph.tables.sources import Source

SUMMED = (
    "new_nodes", "known_nodes", "other_features", "new_edges", "known_edges", "new_labels",
    "changed_labels", "forgotten", "changed_weights", "removed_edges", "missing_edges",
    "updated_nodes", "missing_nodes",
)  # fmt: skip
STREAM_COUNTS = ("lines", "known", "deltas", "new_nodes", "predicted", "right")


def ingest_command(
    target: options.LearnerTarget,
    stream: str | None = typer.Argument(
        None, help="- takes in lines of JSON from standard input (default: none)."
    ),
    nodes: str | None = typer.Option(
        None, help="A .csv or .parquet of id, label if known, features, op (default: none)."
    ),
    edges: str | None = typer.Option(
        None, help="The same of source, target, weight if any, op (default: none)."
    ),
    database: inputs.Database = None,
    sync: bool = typer.Option(
        False, "--sync", help="The tables are all there is: what is not in them goes."
    ),
    allow_emptying: bool = typer.Option(
        False, "--allow-emptying", help="With --sync: even where nothing known would be left."
    ),
    unknown_edges: inputs.UnknownEdges = "refuse",
    forget: str | None = typer.Option(
        None, help="A file of ids to forget, or a column of nodes that marks them (default: none)."
    ),
    batch: int = typer.Option(100, help="How many nodes, or lines, are taken in at once."),
    every: str = typer.Option("2s", help="The longest a line of a stream waits for its batch."),
    key_prefix: str | None = typer.Option(
        None, help="Names a stream, whose lines count once (default: made of its first line)."
    ),
    integers: bool = typer.Option(False, "--integers", help="Ids in a CSV are whole numbers."),
    skip_known: bool = typer.Option(
        False, "--skip-known", help="Pass over what a stream says again, as is done for tables."
    ),
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    delimiter: inputs.Delimiter = ",",
    decimal: inputs.Decimal = ".",
    columns: inputs.ColumnKinds = [],
    gaps: inputs.Gaps = "flag",
    strict: bool = typer.Option(False, "--strict", help="Refuse categories that come later."),
    memory_limit: options.LearnerMemory = None,
    scratch: options.Scratch = None,
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Add new nodes, edges and labels from tables, in the order of their rows.

    What the learner knows already is passed over, so a dump that has grown can be given again as
    a whole, and a command that was stopped goes on when it is given again. A column op says what
    else is to happen: update or forget for nodes, remove for edges. With --from, --nodes and
    --edges are queries to a database.

    With --sync the learner becomes what the tables say: nodes that are not in --nodes are
    forgotten, edges that are not in --edges are removed, and features of known nodes become those
    of the table. A table that is not given changes nothing.

    With - each line of stdin is a JSON object: {"node": id, "features": [..], "label": ..,
    "type": ..}, or columns in place of features; {"edge": [id, id], "weight": .., "relation": ..},
    {"remove_edge": [id, id]}, {"update": id, "features": [..]},
    {"label": [id, label]} or {"forget": id}. The same stream given again goes on where it ended.
    """
    within = {"memory_limit": memory_limit, "scratch": scratch, "ca": ca}
    chosen = partial(parse_columns, columns, gaps=gaps, strict=strict)
    learner = _Receiver(target, token_file, chosen, within)
    if stream is not None:
        if stream != "-" or sync or any(given is not None for given in (nodes, edges, forget)):
            raise ConfigurationError(
                f"a stream is given as - and alone, without tables, not as {stream!r} with others"
            )
        way = {"batch": batch, "every": seconds_of(every), "prefix": key_prefix}
        load_plugins(plugins)
        _ingest_stream(learner, way | {"skip_known": skip_known}, as_json)
        return
    try:
        load_plugins(plugins)
        tables: list[Source | None] = [None, None]
        if nodes or edges:
            tables = tables_of(
                nodes, edges, database=database, delimiter=delimiter, decimal=decimal
            )
        intake = _Intake(sync, allow_emptying, unknown_edges)
        if tables == [None, None] and (sync or forget is None):
            needed = "ingest needs --nodes, --edges, --forget or a stream -, and none was given"
            raise ConfigurationError("--sync needs --nodes, --edges or both" if sync else needed)
        gone: str | list[str | int] = [] if forget is None else forget
        if forget is not None and Path(forget).is_file():
            gone = read_ids(forget, integers=integers)
        reading = {"forget": gone, "batch": batch, "integers": integers}
        done = _ingest(learner, tables, reading, intake)
    except KeyboardInterrupt:
        typer.echo("interrupted: give the same command again to go on", err=True)
        raise typer.Exit(130) from None
    if done["other_features"]:
        left = f"the features of {_many(done['other_features'], 'known node')} were left"
        say(tables[0], f"{left} as the learner has them: 'update' in a column 'op' changes them")
    for place, what, change in ((1, "edge", "remove"), (0, "node", "update")):
        if missing := done[f"missing_{what}s"]:
            say(tables[place], f"{_many(missing, what)} to {change}: the learner has no such")
    if as_json:
        print_json(done)
    else:
        if done["columns"]:
            rows = [tuple(row.values()) for row in done["columns"]]
            print_table(tuple(done["columns"][0]), rows, f"{tables[0]}")
        typer.echo(_summary(done))


@dataclass(frozen=True)
class _Receiver:
    """The learner that is to take something in.

    Attributes:
        target, token_file: as typed.
        chosen: makes what was typed of columns, which takes torch.
        within: limit and scratch of a folder, authority of a service.
    """

    target: str
    token_file: Path | None
    chosen: Callable[[], Columns]
    within: dict[str, Any]

    def opened(self, given: dict[str, Any] | None = None) -> AbstractContextManager[Target]:
        """Open it to write; given: parameters of one that is to be made."""
        how: dict[str, Any] = {"token_file": self.token_file, "given": given, **self.within}
        return opened(self.target, scope="write", **how)

    def if_new(self, kind: str) -> dict[str, Any] | None:
        """Return what a learner is made with whose folder is not there yet."""
        if kind == "class" or "://" in self.target or Path(self.target).exists():
            return None
        return {"head": {"name": "targets", "kind": kind}}

    def columns(self) -> Columns | Scheme | None:
        """Return how columns are read; None for a learner that takes plain numbers."""
        from evergraph.online.folder.columns_file import check_chosen, columns_for
        from evergraph.server.client import Client

        choices, ca = self.chosen(), self.within["ca"]
        if "://" not in self.target:
            return columns_for(Path(self.target), choices)
        with opened(self.target, token_file=self.token_file, scope="read", ca=ca) as service:
            assert isinstance(service, Client)
            scheme = service.columns(choices.encoders)
            if not service.status()["features"]:
                return choices
        check_chosen(self.target, scheme, choices)
        return scheme


def _ingest_stream(receiver: _Receiver, way: dict[str, Any], as_json: bool) -> None:
    """Take in standard input, and say what it was.  way: of ``LineStream``"""
    with spinner("loading torch"):
        from evergraph.online.line_stream import LineStream

        way["columns"] = receiver.columns()
    with receiver.opened() as learner:
        status = learner.status()
        stream = LineStream(learner, **way, classes=status.get("metric") in (None, "accuracy"))
        try:
            stream.take_in(arriving_lines())
        except KeyboardInterrupt:
            typer.echo("interrupted: give the same stream again to go on", err=True)
            raise typer.Exit(130) from None
        status = learner.status()
    done = {name: getattr(stream, name) for name in STREAM_COUNTS}
    done |= {name: status[name] for name in ("nodes", "edges", "classes")}
    if as_json:
        print_json(done | {"key_prefix": stream.prefix})
    else:
        typer.echo(
            f"{_many(done['lines'], 'line')}, {done['known']:,} known, in "
            f"{_many(done['deltas'], 'delta')}; the learner knows {_many(done['nodes'], 'node')} "
            f"and {done['classes']:,} class{'' if done['classes'] == 1 else 'es'}"
        )


@dataclass(frozen=True)
class _Intake:
    """What becomes of what tables do not hold; sync, emptying: as the options say."""

    sync: bool
    emptying: bool
    unknown_edges: str

    def __post_init__(self) -> None:
        check_choice("--unknown-edges", self.unknown_edges, ("refuse", "skip"))
        if self.emptying and not self.sync:
            raise ConfigurationError("--allow-emptying goes with --sync only")

    def prepared(self, deltas: TableDeltas, learner: Target, counts: dict[str, Any]) -> TableDeltas:
        """Return the deltas with what goes, and without edges that are known or lead nowhere."""
        if self.sync and deltas.places["nodes"][0] is not None:
            deltas = deltas.without_others(learner.every_id(), emptying=self.emptying)
        if self.sync and deltas.places["edges"][0] is not None:
            deltas = deltas.without_other_edges(learner.edges_beyond, emptying=self.emptying)
        if self.unknown_edges == "skip":
            deltas, counts["unknown_edges"] = deltas.without_unknown_edges(learner.knows_nodes)
        deltas, counts["known_edges"] = learner.unknown(deltas)
        return deltas


def _summary(done: dict[str, Any]) -> str:
    """Say in one line what was done."""
    ignored = f", ignored columns: {', '.join(done['ignored'])}" if done["ignored"] else ""
    right = ""
    if done["predicted"]:
        share = f"{done['right']:,} of {done['predicted']:,}"
        right = f", {share} predicted right before they were learned"
    if "metric" in done:
        found = "none yet" if done["accuracy"] is None else f"{done['accuracy']:.4g}"
        right = f", {done['metric']} before they were learned {found}"
    parts = (
        _many(done["new_nodes"], "new node"),
        f"{_many(done['known_nodes'], 'known node')} skipped",
        _many(done["new_edges"], "new edge"),
        f"{_many(done['new_labels'], 'label')} added",
        f"{done['changed_labels']:,} changed",
        *_changes(done),
        f"{_many(done['forgotten'], 'node')} forgotten",
    )
    return (
        f"{', '.join(parts)}{ignored}; the learner knows {_many(done['nodes'], 'node')} and "
        f"{_kinds(done)}{right}"
    )


def _changes(done: dict[str, Any]) -> list[str]:
    """Return what of the changes besides arrival there was, each in a few words."""
    changes = (
        ("changed_weights", "weight", "changed"),
        ("removed_edges", "edge", "removed"),
        ("updated_nodes", "node", "updated"),
        ("unknown_edges", "edge", "to unknown nodes skipped"),
    )
    return [f"{_many(done[name], what)} {how}" for name, what, how in changes if done[name]]


def _kinds(done: dict[str, Any]) -> str:
    """Return how many classes there are, or labels; of numbers that they are some."""
    if done.get("metric") == "mean absolute error":
        return "their numbers"
    if "metric" in done:
        return _many(done["classes"], "label")
    return f"{done['classes']:,} class{'' if done['classes'] == 1 else 'es'}"


def _many(count: int, what: str) -> str:
    """Return how many there are of something.

    >>> _many(1, "node"), _many(1200, "node")
    ('1 node', '1,200 nodes')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _ingest(
    receiver: _Receiver,
    tables: list[Source | None],
    reading: dict[str, Any],
    intake: _Intake,
) -> dict[str, Any]:
    """Take tables in.  reading: how they are read, see ``read_deltas``"""
    with spinner("loading torch"):
        from evergraph.online.codecs.tables import read_deltas

        columns = receiver.columns()
        deltas = read_deltas(*tables, columns=columns, **reading)
    from evergraph.online.delta import is_empty
    from evergraph.tables.fitting import say_few
    from evergraph.tables.scheme import Scheme

    counts = dict.fromkeys(("predicted", "right", "unknown_edges", *SUMMED), 0)
    with (
        receiver.opened(receiver.if_new(deltas.kind)) as learner,
        StageProgress({"ingest": "deltas"}) as progress,
    ):
        if not learner.status()["relations"]:
            deltas = deltas.without_relations()
        deltas = intake.prepared(deltas, learner, counts)
        if deltas.features is not None and deltas.nodes:  # an empty table settles nothing
            learner.keep_columns(deltas.scheme)
        for done, delta in enumerate(deltas, start=1):
            if not is_empty(delta):
                reply = learner.upsert(delta)
                for name in SUMMED:
                    counts[name] += reply["news"][name]
                for name in ("predicted", "right"):
                    counts[name] += reply[name]
            progress.on_progress("ingest", done, len(deltas))
        if intake.sync and deltas.updates is not None:  # known, and as they were
            counts["known_nodes"] += int(deltas.updates.sum()) - counts["updated_nodes"]
        status = learner.status()
        known = {name: status[name] for name in ("nodes", "edges", "classes")}
        if status.get("metric", "accuracy") != "accuracy":
            known |= {name: status[name] for name in ("metric", "accuracy")}
    if deltas.scheme is not None and not isinstance(columns, Scheme):
        say_few(tables[0], len(deltas.nodes), deltas.scheme)
    told = [] if deltas.scheme is None else deltas.scheme.rows()
    of_tables = {"deltas": len(deltas), "ignored": list(deltas.ignored), "columns": told}
    return counts | known | of_tables
