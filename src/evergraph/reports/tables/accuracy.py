"""Tables of accuracy: the protocol's number, the summary of all runs, and further measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evergraph.reports.runs import Entry, Finished, Group, metric_of
from evergraph.reports.tables.costs import kept_cell
from evergraph.reports.tables.record import (
    NAMED,
    Cell,
    Table,
    TableColumn,
    named,
    own_names,
    ranked,
)
from evergraph.reports.units import deviations, percent, seconds_a_seed

HEADLINE_COLUMNS = (
    *NAMED,
    TableColumn("tested"),
    *(TableColumn(short, (f"{short} mean", f"{short} std")) for short in ("AA", "AF")),
)


def headline_table(groups: Sequence[Group]) -> Table | None:
    """Return a row for each run under a protocol; None if there are none."""
    entries = [(group, entry) for group in groups for entry in group.entries]
    rows = [
        (*named(group, entry), *_cells(entry.run))
        for group, entry in entries
        if entry.run.protocol is not None
    ]
    return _table(rows, [entry.run for _, entry in entries])


def headlines(runs: Sequence[Finished]) -> Table | None:
    """Return the same for runs outside a report, in their order."""
    rows = [(*own_names(run), *_cells(run)) for run in runs if run.protocol is not None]
    return _table(rows, runs)


def _table(rows: Sequence[tuple[Cell, ...]], runs: Iterable[Finished]) -> Table | None:
    if not rows:
        return None
    caption = (
        "Average accuracy (AA) and average forgetting (AF) after the last task, tested and "
        f"averaged as the protocol's paper reports them, in percent{deviations(runs)}."
    )
    return Table("headline", caption, HEADLINE_COLUMNS, (tuple(rows),))


def _cells(run: Finished) -> tuple[Cell, ...]:
    testing, averaging = run.headline
    spreads = [
        run.result[metric][testing][averaging]
        for metric in ("average_accuracy", "average_forgetting")
    ]
    numbers = (Cell(percent(spread), (spread["mean"], spread["std"])) for spread in spreads)
    return (Cell(f"{testing}, {averaging}"), *numbers)


SUMMARY_METRICS = tuple(
    (short, metric, testing)
    for testing in ("local", "global")
    for short, metric in (("AA", "average_accuracy"), ("AF", "average_forgetting"))
)
SUMMARY_COLUMNS = (
    *NAMED,
    *(TableColumn(f"{m} {t}", (f"{m} {t} mean", f"{m} {t} std")) for m, _, t in SUMMARY_METRICS),
    TableColumn("memory", ("memory bytes",)),
    TableColumn("covered", ("coverage ratio",)),
    TableColumn("seconds per seed", ("seconds per seed",)),
)


def summary_table(groups: Sequence[Group]) -> Table:
    """Return a row per run; accuracies are class-balanced, percent in text and fractions in CSV."""
    runs = [entry.run for group in groups for entry in group.entries]
    caption = (
        f"Average {metric_of(runs)} (AA) and average forgetting (AF) after the last task"
        f"{balanced(runs)}, in percent{deviations(runs)}; best bold, second best underlined, per "
        "dataset and setting. Seconds are from start to end, the mean over seeds."
        f"{labels_shown(runs)}"
    )
    return Table(
        "summary", caption, SUMMARY_COLUMNS, tuple(_summary_block(group) for group in groups)
    )


def _summary_block(group: Group) -> tuple[tuple[Cell, ...], ...]:
    columns = zip(*(_accuracies(entry.run) for entry in group.entries), strict=True)
    accuracies = zip(*map(ranked, columns), strict=True)
    return tuple(
        (*named(group, entry), *cells, *_costs(entry.run))
        for entry, cells in zip(group.entries, accuracies, strict=True)
    )


def comparison(runs: Sequence[Finished]) -> Table:
    """Return the same for runs outside a report, in their order and without ranks."""
    said = metric_of(runs)
    said = "class-balanced accuracy" if said == "accuracy" else f"{said}{balanced(runs)}"
    caption = f"{said} in percent{deviations(runs)}{labels_shown(runs)}"
    rows = tuple((*own_names(run), *_accuracies(run), *_costs(run)) for run in runs)
    return Table("summary", caption, SUMMARY_COLUMNS, (rows,))


def balanced(runs: Sequence[Finished]) -> str:
    """Return the caption's words on balanced accuracies, if any run is measured by accuracy."""
    every = {run.metric for run in runs}
    if "accuracy" not in every:
        return ""
    return ", class-balanced" if len(every) == 1 else ", accuracies class-balanced"


def labels_shown(runs: Sequence[Finished]) -> str:
    """Return a sentence on runs whose local test graphs show labels, which reveal the task."""
    streams = [run.result["config"]["stream"] for run in runs]
    if not any(stream.get("known_labels") == "everywhere" for stream in streams):
        return ""
    return " Where known_labels is everywhere, local test graphs show labels of training nodes."


def failed(method: str, dataset: str, setting: str) -> list[str]:
    """Return the row of a run without a result."""
    known = (method, dataset, setting, "failed")
    return [*known, *("-" for _ in SUMMARY_COLUMNS[len(known) :])]


def _accuracies(run: Finished) -> list[Cell]:
    spreads = [run.main(metric, testing) for _, metric, testing in SUMMARY_METRICS]
    return [Cell(percent(spread), (spread["mean"], spread["std"])) for spread in spreads]


def _costs(run: Finished) -> tuple[Cell, Cell, Cell]:
    seconds, covered = seconds_a_seed(run, "total"), run.result["coverage_ratio"]
    ratio = Cell("-") if covered is None else Cell(f"{100 * covered:.1f} %", (covered,))
    return kept_cell(run), ratio, Cell(f"{seconds:.1f}", (seconds,))


MEASURES = (
    ("AAA", "anytime_accuracy"), ("ECE", "calibration_error"),
    ("AUROC", "rejection_auroc"), ("FWT", "forward_transfer"),
    ("AP", "average_precision"), ("MAE", "mae"),
)  # fmt: skip
BEYOND = tuple(
    (short, name, testing) for testing in ("local", "global") for short, name in MEASURES
)


def beyond_table(groups: Sequence[Group]) -> Table:
    """Return a row for each run and a column for each measure that any run has."""
    entries = [entry for group in groups for entry in group.entries]
    told = [metric for metric in BEYOND if any(_spread(e, *metric[1:]) for e in entries)]
    caption = (
        f"AAA: average {metric_of(e.run for e in entries)}, mean over all tests; ECE: expected "
        "calibration error, lower is better; AUROC: unknown nodes against known ones, 50 is "
        "guessing; FWT: accuracy on known classes of the next task, above guessing"
        f"{_of_targets(told)}. In percent{deviations(e.run for e in entries)}"
        "; - if not measured or not defined."
    )
    columns = [TableColumn(f"{m} {t}", (f"{m} {t} mean", f"{m} {t} std")) for m, _, t in told]
    blocks = tuple(
        tuple(
            (*named(group, entry), *(_cell(_spread(entry, n, t), n) for _, n, t in told))
            for entry in group.entries
        )
        for group in groups
    )
    return Table("beyond", caption, (*NAMED, *columns), blocks)


def _spread(entry: Entry, name: str, testing: str) -> dict[str, Any] | None:
    """Return a measure's mean and deviation; earlier versions have accuracies only."""
    if name == "anytime_accuracy":
        return entry.run.anytime(testing)
    result: dict[str, Any] = entry.run.result
    spread: dict[str, Any] | None = result.get("measures", {}).get(testing, {}).get(name)
    return spread


def _of_targets(told: Sequence[tuple[str, str, str]]) -> str:
    names = {name for _, name, _ in told}
    said = ""
    if "average_precision" in names:
        said += "; AP: average precision, the mean over labels"
    if "mae" in names:
        said += "; MAE: mean absolute error in the target's own units, lower is better"
    return said


def _cell(spread: dict[str, Any] | None, name: str) -> Cell:
    if spread is None:
        return Cell("-")
    text = percent(spread) if name != "mae" else f"{spread['mean']:.4g}"
    return Cell(text, (spread["mean"], spread["std"]))
