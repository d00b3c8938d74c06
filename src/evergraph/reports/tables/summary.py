"""All runs: how well, how much kept, how long."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.runs import Finished, Group, metric_of
from evergraph.reports.tables.costs import kept_cell
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named, own_names, ranked
from evergraph.reports.units import deviations, percent, seconds_a_seed

METRICS = tuple(
    (short, metric, testing)
    for testing in ("local", "global")
    for short, metric in (("AA", "average_accuracy"), ("AF", "average_forgetting"))
)
COLUMNS = (
    *NAMED,
    *(Column(f"{m} {t}", (f"{m} {t} mean", f"{m} {t} std")) for m, _, t in METRICS),
    Column("memory", ("memory bytes",)),
    Column("covered", ("coverage ratio",)),
    Column("seconds per seed", ("seconds per seed",)),
)


def summary_table(groups: Sequence[Group]) -> Table:
    """Return a row a run; accuracies are class-balanced, percent in text and fractions in CSV."""
    runs = [entry.run for group in groups for entry in group.entries]
    caption = (
        f"Average {metric_of(runs)} (AA) and average forgetting (AF) after the last task"
        f"{balanced(runs)}, in percent{deviations(runs)}; best bold, second best underlined, per "
        "dataset and setting. Seconds are from start to end, the mean over seeds."
        f"{labels_shown(runs)}"
    )
    return Table("summary", caption, COLUMNS, tuple(_block(group) for group in groups))


def _block(group: Group) -> tuple[tuple[Cell, ...], ...]:
    columns = zip(*(_accuracies(entry.run) for entry in group.entries), strict=True)
    accuracies = zip(*map(ranked, columns), strict=True)
    return tuple(
        (*named(group, entry), *cells, *_costs(entry.run))
        for entry, cells in zip(group.entries, accuracies, strict=True)
    )


def comparison(runs: Sequence[Finished]) -> Table:
    """Return the same for runs that are in no report, in their order and without ranks."""
    said = metric_of(runs)
    said = "class-balanced accuracy" if said == "accuracy" else f"{said}{balanced(runs)}"
    caption = f"{said} in percent{deviations(runs)}{labels_shown(runs)}"
    rows = tuple((*own_names(run), *_accuracies(run), *_costs(run)) for run in runs)
    return Table("summary", caption, COLUMNS, (rows,))


def balanced(runs: Sequence[Finished]) -> str:
    """Return what is to be said of accuracies, where any run was measured by these."""
    every = {run.metric for run in runs}
    if "accuracy" not in every:
        return ""
    return ", class-balanced" if len(every) == 1 else ", accuracies class-balanced"


def labels_shown(runs: Sequence[Finished]) -> str:
    """Return a sentence on runs whose local test graphs show labels, which give the task away."""
    streams = [run.result["config"]["stream"] for run in runs]
    if not any(stream.get("known_labels") == "everywhere" for stream in streams):
        return ""
    return " Where known_labels is everywhere, local test graphs show labels of training nodes."


def failed(method: str, dataset: str, setting: str) -> list[str]:
    """Return what a row says of a run without a result."""
    known = (method, dataset, setting, "failed")
    return [*known, *("-" for _ in COLUMNS[len(known) :])]


def _accuracies(run: Finished) -> list[Cell]:
    spreads = [run.main(metric, testing) for _, metric, testing in METRICS]
    return [Cell(percent(spread), (spread["mean"], spread["std"])) for spread in spreads]


def _costs(run: Finished) -> tuple[Cell, Cell, Cell]:
    seconds, covered = seconds_a_seed(run, "total"), run.result["coverage_ratio"]
    ratio = Cell("-") if covered is None else Cell(f"{100 * covered:.1f} %", (covered,))
    return kept_cell(run), ratio, Cell(f"{seconds:.1f}", (seconds,))
