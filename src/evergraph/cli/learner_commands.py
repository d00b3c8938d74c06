"""``evergraph status`` and ``evaluate``; ``info`` and ``report`` of a learner's folder."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.cli import inputs, options
from evergraph.cli.inputs import TableOptions, with_shared_options
from evergraph.cli.learner_target import is_learner, opened
from evergraph.cli.options import argument, flag, option
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.evaluation.held_out import HeldOutScores
    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.learner import OnlineLearner
    from evergraph.reports.tables import Table
    from evergraph.tables.sources import Source

FINDING = "loading torch and the learner"


def status_command(
    target: options.LearnerTarget,
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Show how a learner is: its size, its accuracy, the alarm, its snapshots.

    Accuracy is that of predictions made before their labels came.
    """
    load_plugins(plugins)
    with (
        spinner("querying" if "://" in target else FINDING),
        opened(target, token_file=token_file, scope="read", new=False, ca=ca) as learner,
    ):
        facts, alarms = learner.status(), learner.alarms()
    if as_json:
        print_json(facts | {"alarms": alarms})
        return
    from evergraph.reports.learner import learner_facts

    _print(learner_facts(facts), target)
    for alarm in alarms:
        say(f"alarm: {alarm['message']}")


def _print(facts: dict[str, str], title: str) -> None:
    print_table(("fact", "value"), list(facts.items()), title)


def _shown(table: Table) -> None:
    print_table(table.headings, table.texts, table.caption)


def _read_only(folder: Path, stack: ExitStack) -> LearnerFolder:
    from evergraph.online.folder.learner_folder import LearnerFolder

    return stack.enter_context(LearnerFolder.open(folder, readonly=True))


def show_learner(folder: Path, as_json: bool) -> None:
    """Print what a learner is made of and what it has learned: ``evergraph info LEARNER``."""
    with ExitStack() as stack:
        with spinner(FINDING):
            from evergraph.online.plotting import learner_history
            from evergraph.reports.learner import class_sizes_table, learner_facts

            opened = _read_only(folder, stack)
        learner, scheme = opened.learner, opened.columns
        status, parameters = asdict(learner.status()), learner.parameters
        columns = [] if scheme is None else scheme.rows()
        history = learner_history(learner)
    if as_json:
        sizes = {str(name): count for name, count in history.class_sizes.items()}
        facts = {"learner": str(folder), "targets": learner.head.kind, "parameters": parameters}
        print_json(facts | status | {"columns": columns, "class_sizes": sizes})
        return
    topology, head = (
        ", ".join(
            [part["name"], *(f"{k} {v}" for k, v in part.items() if k != "name" and v is not None)]
        )
        for part in (parameters["topology"], parameters["head"])
    )
    of_parts = {"head": head, "topology": topology, "seed": str(parameters["seed"])}
    _print(learner_facts(status) | of_parts, str(folder))
    if columns:
        print_table(tuple(columns[0]), [tuple(row.values()) for row in columns], "columns")
    if history.class_sizes:
        _shown(class_sizes_table(history.class_sizes, history.latest_sizes))


def report_learner(folder: Path, out: Path | None) -> None:
    """Write the page about a learner: ``evergraph report LEARNER``."""
    require("matplotlib", extra="report", why="evergraph report")
    page = _page(out, folder, "report")
    with ExitStack() as stack:
        with spinner(FINDING):
            from evergraph.online.plotting import learner_history
            from evergraph.reports.learner import learner_facts, write_learner_report

            opened = _read_only(folder, stack)
        learner = opened.learner
        history = learner_history(learner)
        status = asdict(opened.status()) | asdict(learner.status())
        with spinner("drawing the report"):
            name = folder.resolve().name
            path = write_learner_report(name, status, history, page)
    _print(learner_facts(status), str(folder))
    say(f"report: {path}")


def _page(out: Path | None, folder: Path, what: str) -> Path:
    """Return the page to write: beside the folder, which holds nothing but the learner."""
    if out is None:
        beside = folder.resolve()
        return beside.with_name(f"{beside.name}-{what}.html")
    if out.suffix != ".html":
        raise ConfigurationError(f"--out must end in .html, not {out.name!r}")
    return out


@with_shared_options
def evaluate_command(
    folder: Path = argument("A learner's folder."),
    nodes: str = option(
        "A .csv or .parquet with id and the true label, and features of new nodes.", default=...
    ),
    edges: str | None = option("A .csv or .parquet with edges of new nodes (default: none)."),
    database: inputs.Database = None,
    out: Path | None = option("The page to write, an .html (default: none)."),
    integers: bool = flag("--integers", "Ids in a CSV are integers."),
    written: TableOptions = TableOptions(),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Compare predictions with the true labels of held-out nodes.

    Classes: accuracy, per class, confusion, calibration. Several labels: F1, average precision.
    Numbers: R2 and errors. Nodes that the learner does not know are predicted as if they had been
    added without their labels; nothing is written. --from makes --nodes and --edges queries.
    """
    if not is_learner(folder):
        raise DataError(f"{folder} holds no learner: evergraph ingest creates one")
    page = None if out is None else _page(out, folder, "evaluation")
    if page is not None:
        require("matplotlib", extra="report", why="evaluate --out")
    load_plugins(plugins)
    tables = written.tables(nodes, edges, database=database)
    with ExitStack() as stack:
        with spinner(FINDING):
            from evergraph.online.codecs.tables import read_deltas
            from evergraph.reports.learner import evaluation_tables, plain, write_evaluation

            opened = _read_only(folder, stack)
            deltas = read_deltas(*tables, columns=opened.columns, integers=integers)
        with spinner("predicting"):
            scores, facts = _evaluated(opened.learner, deltas, tables[0])
    if as_json:
        print_json(facts | plain(scores))
    else:
        for table in evaluation_tables(scores):
            _shown(table)
    about = f"{facts['nodes']:,} nodes of {nodes}, {facts['new']:,} of them new to the learner"
    if facts["learned"]:
        say(
            f"note: the learner has learned the labels of {facts['learned']:,} of these nodes: "
            "of others its predictions may be worse",
            err=True,
        )
    if page is not None:
        say(f"page: {write_evaluation(folder.resolve().name, about, scores, page)}", err=as_json)


def _evaluated(
    learner: OnlineLearner, deltas: TableDeltas, where: Source | None
) -> tuple[HeldOutScores, dict[str, Any]]:
    """Return the scores of a table's nodes, and how many are new and how many were learned."""
    import pyarrow as pa

    from evergraph.evaluation.held_out import score
    from evergraph.online.delta import is_empty
    from evergraph.tables.sources import naming

    target = learner.head.target
    told = zip(deltas.nodes.to_pylist(), deltas.labels.to_pylist(), strict=True)
    right = {node: label for node, label in told if label is not None}
    if not right:
        raise DataError(f"{where}: has no labels to compare predictions with")
    with naming(where):
        target.check_all([*right.values()])
    every = deltas.nodes.to_pylist()
    if not learner.status().relations:
        deltas = deltas.without_relations()
    deltas.check_known(learner.knows_nodes)
    known = dict(zip(every, learner.knows_nodes(every), strict=True))
    with learner.reading([node for node in right if known[node]]) as state:
        labels = state.parts.named_labels(state.positions)
    unlabelled = pa.nulls(len(every), deltas.labels.type)
    delta = next(iter(replace(deltas, labels=unlabelled, batch=len(every))))
    new, _ = learner.only_new(delta)
    if not is_empty(new):
        learner.apply(new)  # this process's own learner: the folder is open for reading
    classes, found = learner.predict_proba([*right])
    facts = {
        "nodes": len(right),
        "new": sum(not known[node] for node in right),
        "learned": sum(label is not None for label in labels),
    }
    return score(target, classes, found, [*right.values()]), facts
