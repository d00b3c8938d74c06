"""``evergraph status``, ``evaluate``, ``report`` and ``compare``: what a learner or runs learned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.cli import inputs, options
from evergraph.cli.inputs import TableOptions, with_shared_options
from evergraph.cli.learner_target import LOADING, Access, is_learner
from evergraph.cli.options import argument, flag, option
from evergraph.cli.output import print_json, print_table, say, show_table, spinner
from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    ResultsError,
    UnknownNameError,
    check_choice,
)
from evergraph.core.packages import load_plugins, require
from evergraph.core.safe_files import check_writable

if TYPE_CHECKING:
    from evergraph.evaluation.held_out import HeldOutScores
    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.learner import OnlineLearner
    from evergraph.reports.trials import Trials
    from evergraph.tables.sources import Source

DatasetAndSetting = tuple[str, str]
"""A dataset and a setting."""


@with_shared_options
def status_command(
    target: options.LearnerTarget,
    access: Access = Access(),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Show how a learner is: its size, its accuracy, the alarm, its snapshots.

    Accuracy is that of predictions made before their labels came.
    """
    with access.open(target, plugins=plugins) as learner:
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


@contextmanager
def _reading(folder: Path) -> Iterator[LearnerFolder]:
    """Open a learner to be read; it may be in use."""
    with spinner(LOADING):
        from evergraph.online.folder.learner_folder import LearnerFolder

        opened = LearnerFolder.open(folder, readonly=True)
    with opened:
        yield opened


def show_learner(folder: Path, as_json: bool) -> None:
    """Print what a learner is made of and what it has learned: ``evergraph info LEARNER``."""
    with _reading(folder) as opened:
        from evergraph.online.plotting import learner_history
        from evergraph.reports.learner import class_sizes_table, learner_facts

        learner, scheme = opened.learner, opened.columns
        status, parameters = asdict(learner.status()), learner.parameters
        columns = [] if scheme is None else scheme.rows()
        history = learner_history(learner)
    if as_json:
        sizes = {str(name): count for name, count in history.class_sizes.items()}
        facts = {"learner": str(folder), "targets": learner.head.kind, "parameters": parameters}
        print_json(facts | status | {"columns": columns, "class_sizes": sizes})
        return
    facts_in_words = learner_facts(status) | {
        "head": _in_words(parameters["head"]),
        "topology": _in_words(parameters["topology"]),
        "seed": str(parameters["seed"]),
    }
    _print(facts_in_words, str(folder))
    if columns:
        print_table(tuple(columns[0]), [tuple(row.values()) for row in columns], "columns")
    if history.class_sizes:
        show_table(class_sizes_table(history.class_sizes, history.latest_sizes))


def _in_words(component: dict[str, Any]) -> str:
    """Return the name of a component and its parameters.

    >>> _in_words({"name": "sgc", "hops": 2, "dtype": None})
    'sgc, hops 2'
    """
    parameters = [
        f"{key} {value}" for key, value in component.items() if key != "name" and value is not None
    ]
    return ", ".join([component["name"], *parameters])


def report_learner(folder: Path, out: Path | None) -> None:
    """Write the page about a learner: ``evergraph report LEARNER``."""
    require("matplotlib", extra="report", why="evergraph report")
    page = _page(out, folder, "report")
    with _reading(folder) as opened:
        from evergraph.online.plotting import learner_history
        from evergraph.reports.learner import learner_facts, write_learner_report

        learner = opened.learner
        history = learner_history(learner)
        status = asdict(opened.status()) | asdict(learner.status())
        with spinner("drawing the report"):
            name = folder.resolve().name
            path = write_learner_report(name, status, history, page)
    _print(learner_facts(status), str(folder))
    say(f"report: {path}")


def _page(out: Path | None, folder: Path, suffix: str) -> Path:
    """Return the page to write: beside the folder, which holds nothing but the learner."""
    if out is None:
        learner_folder = folder.resolve()
        return learner_folder.with_name(f"{learner_folder.name}-{suffix}.html")
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
    with _reading(folder) as opened:
        with spinner(LOADING):
            from evergraph.online.codecs.tables import read_deltas
            from evergraph.reports.learner import evaluation_tables, plain, write_evaluation

            deltas = read_deltas(*tables, columns=opened.columns, integers=integers)
        with spinner("predicting"):
            scores, facts = _score_nodes(opened.learner, deltas, tables[0])
    if as_json:
        print_json(facts | plain(scores))
    else:
        for table in evaluation_tables(scores):
            show_table(table)
    about = f"{facts['nodes']:,} nodes of {nodes}, {facts['new']:,} of them new to the learner"
    if facts["learned"]:
        say(
            f"note: the learner has learned the labels of {facts['learned']:,} of these nodes: "
            "of others its predictions may be worse",
            err=True,
        )
    if page is not None:
        say(f"page: {write_evaluation(folder.resolve().name, about, scores, page)}", err=as_json)


def _score_nodes(
    learner: OnlineLearner, deltas: TableDeltas, source: Source | None
) -> tuple[HeldOutScores, dict[str, Any]]:
    """Return the scores of a table's nodes, and how many are new and how many were learned."""
    from evergraph.evaluation.held_out import score
    from evergraph.online.delta import is_empty
    from evergraph.tables.sources import naming

    target = learner.head.target
    true_labels = deltas.labels()
    if not true_labels:
        raise DataError(f"{source}: has no labels to compare predictions with")
    with naming(source):
        target.check_all([*true_labels.values()])
    table_nodes = [*deltas.whole.nodes, *deltas.whole.updated, *deltas.known]
    if not learner.status().relations:
        deltas = deltas.without_relations()
    deltas.check_known(learner.knows_nodes)
    known = dict(zip(table_nodes, learner.knows_nodes(table_nodes), strict=True))
    with learner.reading([node for node in true_labels if known[node]]) as state:
        labels = state.named_labels(state.positions)
    added = replace(deltas.whole, labels=(), late=(), removed_edges=(), forgotten=())
    new_part, _ = learner.only_new(added)
    if not is_empty(new_part):
        learner.apply(new_part)  # this process's own learner: the folder is open for reading
    classes, predictions = learner.predict_proba([*true_labels])
    facts = {
        "nodes": len(true_labels),
        "new": sum(not known[node] for node in true_labels),
        "learned": sum(label is not None for label in labels),
    }
    return score(target, classes, predictions, [*true_labels.values()]), facts


def report_command(
    folder: Path = argument(
        "A results folder, a folder of them, or a learner.", default=Path("runs")
    ),
    against: str | None = option("The method to compare the others with (default: the best)."),
    out: Path | None = option("For a learner: the page (default: LEARNER-report.html)."),
    plugins: options.Plugins = [],
) -> None:
    """Compare the finished runs in a folder, or draw a learner, in tables and a page.

    FOLDER/report.html contains everything and opens offline; its tables (CSV, Markdown, LaTeX) and
    figures (PNG, SVG) are also in FOLDER/report. The page of a learner, beside its folder, has its
    accuracy over time, its classes, how they change, and which it confuses.
    """
    load_plugins(plugins)
    if is_learner(folder):
        report_learner(folder, out)
        return
    if out is not None:
        raise ConfigurationError(f"--out is for a learner's folder, and {folder} is none")
    require("matplotlib", extra="report", why="evergraph report")
    from evergraph.reports.report import write_report
    from evergraph.reports.run_tables import comparison
    from evergraph.reports.runs import collect

    runs = collect(folder)
    check_writable(folder)
    with spinner("drawing the report"):
        path = write_report(runs, folder, against=against)  # before printing, which may fail
    show_table(comparison(runs))
    say(f"tables and figures: {path.with_suffix('')}")
    say(f"report: {path}")


def compare_command(
    a: str = argument("A results folder, or a method's name with --in."),
    b: str = argument("The run or method to compare it with."),
    folder: Path | None = option(
        "Where to find the methods: a folder of runs, or the results book "
        "(default: A and B are folders).",
        "--in",
    ),
    testing: str | None = option("local or global (default: the protocol's, else local)."),
    averaging: str | None = option("balanced or plain (default: the protocol's, else balanced)."),
    as_json: options.AsJson = False,
) -> None:
    """Test whether run A is better than run B, and by how much.

    Repeats are paired by seed and split. With several datasets there is one sentence for each,
    and then Wilcoxon's test over all of them.
    """
    from evergraph.reports.comparing import compare_trials, corrected, over_datasets

    def listed(keys: Iterable[DatasetAndSetting]) -> str:
        return "; ".join(", ".join(key) for key in keys)

    trials_a, trials_b = (trials_in(typed, folder, testing, averaging) for typed in (a, b))
    common = [key for key in trials_a if key in trials_b]
    if not common:
        raise ResultsError(
            f"{a} and {b} have no dataset and setting in common: {a} has {listed(trials_a)}, "
            f"{b} has {listed(trials_b)}"
        )
    for name, trials, others in ((a, trials_a, trials_b), (b, trials_b, trials_a)):
        if alone := [key for key in trials if key not in others]:
            say(f"left out, because only {name} has results: {listed(alone)}", err=True)
    pairs = []
    for key in common:
        first, second = trials_a[key], trials_b[key]
        if first.name == second.name:  # told apart by their folders
            first = replace(first, name=f"{first.name} ({a})")
            second = replace(second, name=f"{second.name} ({b})")
        pairs.append((first, second))
    comparisons = corrected([compare_trials(*pair) for pair in pairs])
    across_datasets = over_datasets(comparisons)
    if as_json:
        print_json(
            {
                "comparisons": [comparison.to_dict() for comparison in comparisons],
                "over_datasets": [comparison.to_dict() for comparison in across_datasets],
            }
        )
        return
    for comparison in comparisons:
        say(comparison.sentence)
    for test in across_datasets:
        say(test.sentence)


def trials_in(
    typed: str, folder: Path | None, testing: str | None, averaging: str | None
) -> dict[DatasetAndSetting, Trials]:
    """Return the trials of a folder, or of a method in it, by dataset and setting."""
    from evergraph.experiments.store import RESULT
    from evergraph.reports.runs import collect, way_of
    from evergraph.reports.trials import trials_of

    source_folder = Path(typed) if folder is None else folder
    if folder is None and not source_folder.exists():
        message = (
            f"{typed} must be a results folder, or a method with --in: there is no such folder"
        )
        raise ResultsError(message)
    rows: list[Path] = []  # of a results book, if it is one
    if source_folder.is_dir() and next(source_folder.rglob(RESULT), None) is None:
        rows = sorted(source_folder.glob("*/*/*.json"))
    row_trials = ((path, _trials_of_row(path, testing, averaging)) for path in rows)
    trials_by_source = [(path, trials) for path, trials in row_trials if trials is not None] or [
        (run.folder, trials_of(run, way_of(run.result, testing, averaging)))
        for run in collect(source_folder)
    ]
    holds, remedy = f"{typed} holds", "compare two of its methods with --in"
    if folder is not None:
        holds, remedy = f"{folder} holds", "give the folders of the two runs"
        names = {trials.name for _, trials in trials_by_source}
        if typed not in names:
            raise UnknownNameError(f"method in {folder}", typed, names)
        trials_by_source = [
            (source, trials) for source, trials in trials_by_source if trials.name == typed
        ]
    by_key: dict[DatasetAndSetting, tuple[Path, Trials]] = {}
    for source, trials in trials_by_source:
        key = (trials.dataset, trials.setting)
        if key in by_key:
            raise ResultsError(
                f"{holds} more than one run on {', '.join(key)}, {by_key[key][0]} and "
                f"{source}: {remedy}"
            )
        by_key[key] = (source, trials)
    return {key: trials for key, (_, trials) in sorted(by_key.items())}


def _trials_of_row(path: Path, testing: str | None, averaging: str | None) -> Trials | None:
    """Return the repeats of a row of the book; None if it records a failure."""
    from evergraph.core.targets import target_of
    from evergraph.reports.trials import Trials

    try:
        row = json.loads(path.read_text("utf-8"))
        if row.get("failure") is not None:
            return None
        seeds = row["seeds"]
        values = row["values"]
        facts = row.get("facts", {})
        shared = {name: row[name] for name in ("dataset", "setting", "config")}
        label = row["label"]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        message = f"{path} is not a row of the book: {type(error).__name__}: {error}"
        raise ResultsError(message) from None
    target = target_of(facts.get("targets", {}).get("kind", "class"))
    way = testing or "local", averaging or target.main
    check_choice("testing", way[0], values)
    check_choice("averaging", way[1], values[way[0]])
    task_scores = row.get("tasks", {}).get(way[0], {}).get(way[1]) or []
    return Trials(
        name=label,
        **shared,
        metric=target.measure,
        way=way,
        scores=dict(zip(seeds, values[way[0]][way[1]]["average_accuracy"], strict=True)),
        tasks={seed: of_seed["final"] for seed, of_seed in zip(seeds, task_scores, strict=False)},
        facts=facts,
    )
