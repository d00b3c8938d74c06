"""Tables of runs: accuracy, what it costs, significant differences, mean ranks over datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evergraph.reports.runs import (
    ALL,
    Entry,
    Finished,
    Group,
    count_of,
    deviations,
    groups_of_one,
    metric_of,
    p_text,
    percent,
    runs_of,
    seconds_a_seed,
    size,
)
from evergraph.reports.tables import (
    NAMED,
    Cell,
    Table,
    TableColumn,
    named,
    numbers,
    ranked,
    rows_of,
)
from evergraph.streams.task import TESTINGS

if TYPE_CHECKING:
    from evergraph.reports.comparing import GroupDifferences

SUMMARY_METRICS = tuple(
    (short, metric, testing)
    for testing in ("local", "global")
    for short, metric in (("AA", "average_accuracy"), ("AF", "average_forgetting"))
)
MEASURES = (
    ("AAA", "anytime_accuracy"),
    ("ECE", "calibration_error"),
    ("AUROC", "rejection_auroc"),
    ("FWT", "forward_transfer"),
    ("AP", "average_precision"),
    ("MAE", "mae"),
)
BEYOND = tuple(
    (short, name, testing) for testing in ("local", "global") for short, name in MEASURES
)
COUNTED = ("samples", "gradients", "importance", "floats", "edges")


def spread_column(name: str) -> TableColumn:
    """Return a column of means and deviations."""
    return TableColumn(name, (f"{name} mean", f"{name} std"))


def headline_table(groups: Sequence[Group]) -> Table | None:
    """Return a row for each run under a protocol; None if there are none."""
    rows = []
    for group in groups:
        for entry in group.entries:
            if entry.run.protocol is None:
                continue
            testing, averaging = entry.run.headline
            metrics = ("average_accuracy", "average_forgetting")
            spreads = [_cell(entry.run.result[metric][testing][averaging]) for metric in metrics]
            rows.append((*named(group, entry), Cell(f"{testing}, {averaging}"), *spreads))
    if not rows:
        return None
    caption = (
        "Average accuracy (AA) and average forgetting (AF) after the last task, tested and "
        f"averaged as the protocol's paper reports them, in percent{deviations(runs_of(groups))}."
    )
    columns = (*NAMED, TableColumn("tested"), *map(spread_column, ("AA", "AF")))
    return Table("headline", caption, columns, (tuple(rows),))


def _cell(spread: Mapping[str, Any]) -> Cell:
    return Cell(percent(spread), (spread["mean"], spread["std"]))


PHASES = ("embed", "train", "evaluate")  # whose seconds a result has
SUMMARY_COLUMNS = (
    *NAMED,
    *(spread_column(f"{short} {testing}") for short, _, testing in SUMMARY_METRICS),
    TableColumn("memory", ("memory bytes",)),
    TableColumn("covered", ("coverage ratio",)),
    TableColumn("seconds per seed", ("seconds per seed",)),
)


def summary_table(groups: Sequence[Group]) -> Table:
    """Return a row per run; accuracies are class-balanced, percent in text and fractions in CSV."""
    runs = runs_of(groups)
    caption = (
        f"Average {metric_of(runs)} (AA) and average forgetting (AF) after the last task"
        f"{balanced(runs)}, in percent{deviations(runs)}; best bold, second best underlined, per "
        "dataset and setting. Seconds are of embedding, training and testing, the mean over seeds."
        f"{labels_shown(runs)}"
    )
    blocks = []
    for group in groups:
        columns = [
            ranked([_cell(entry.run.main(metric, testing)) for entry in group.entries])
            for _, metric, testing in SUMMARY_METRICS
        ]
        rows = []
        for entry, *accuracies in zip(group.entries, *columns, strict=True):
            seconds = sum(seconds_a_seed(entry.run, phase) for phase in PHASES)
            covered = entry.run.result["coverage_ratio"]
            ratio = Cell("-") if covered is None else Cell(f"{100 * covered:.1f} %", (covered,))
            costs = kept_cell(entry.run), ratio, Cell(f"{seconds:.1f}", (seconds,))
            rows.append((*named(group, entry), *accuracies, *costs))
        blocks.append(tuple(rows))
    return Table("summary", caption, SUMMARY_COLUMNS, tuple(blocks))


def comparison(runs: Sequence[Finished]) -> Table:
    """Return the same for runs outside a report, in their order and without ranks."""
    metric = metric_of(runs)
    measured = "class-balanced accuracy" if metric == "accuracy" else f"{metric}{balanced(runs)}"
    caption = f"{measured} in percent{deviations(runs)}{labels_shown(runs)}"
    return replace(summary_table(groups_of_one(runs)), caption=caption)


def balanced(runs: Sequence[Finished]) -> str:
    """Return the caption's words on balanced accuracies, if any run is measured by accuracy."""
    metrics = {run.metric for run in runs}
    if "accuracy" not in metrics:
        return ""
    return ", class-balanced" if len(metrics) == 1 else ", accuracies class-balanced"


def labels_shown(runs: Sequence[Finished]) -> str:
    """Return a sentence on runs whose local test graphs show labels, which reveal the task."""
    streams = [run.result["config"]["stream"] for run in runs]
    if not any(stream.get("known_labels") == "everywhere" for stream in streams):
        return ""
    return " Where known_labels is everywhere, local test graphs show labels of training nodes."


def beyond_table(groups: Sequence[Group]) -> Table:
    """Return a row for each run and a column for each measure that any run has."""

    def spread_of(run: Finished, name: str, testing: str) -> dict[str, Any] | None:
        measures: dict[str, Any] = run.result["measures"][testing]
        return run.main(name, testing) if name == "anytime_accuracy" else measures.get(name)

    def cell_of(run: Finished, name: str, testing: str) -> Cell:
        spread = spread_of(run, name, testing)
        if spread is None:
            return Cell("-")
        cell = _cell(spread)
        return replace(cell, text=f"{spread['mean']:.4g}") if name == "mae" else cell

    runs = runs_of(groups)
    shown = [
        (short, name, testing)
        for short, name, testing in BEYOND
        if any(spread_of(run, name, testing) for run in runs)
    ]
    names = {name for _, name, _ in shown}
    of_targets = ""
    if "average_precision" in names:
        of_targets += "; AP: average precision, the mean over labels"
    if "mae" in names:
        of_targets += "; MAE: mean absolute error in the target's own units, lower is better"
    caption = (
        f"AAA: average {metric_of(runs)}, mean over all tests; ECE: expected "
        "calibration error, lower is better; AUROC: unknown nodes against known ones, 50 is "
        "guessing; FWT: accuracy on known classes of the next task, above guessing"
        f"{of_targets}. In percent{deviations(runs)}; - if not measured or not defined."
    )
    columns = [spread_column(f"{short} {testing}") for short, _, testing in shown]
    blocks = rows_of(
        groups, lambda run: [cell_of(run, name, testing) for _, name, testing in shown]
    )
    return Table("beyond", caption, (*NAMED, *columns), blocks)


def costs_table(groups: Sequence[Group]) -> Table:
    """Return a row per run: what it keeps by kind, and its seconds by phase."""
    caption = (
        "Kept between tasks: samples, gradients and importance are float32 values as the paper "
        "counts them, floats is their sum, edges are adjacency entries, size is in memory. "
        "A method that receives all earlier tasks again keeps all data, which is not counted. "
        "Then seconds per seed, the mean over seeds; total is from start to end, including loading "
        "if one process did it all, which counts alike for methods of one command."
    )
    phases = (*PHASES, "total")

    def cells(run: Finished) -> list[Cell]:
        counts = [run.result["memory"].get(kind, 0) for kind in COUNTED]
        times = [seconds_a_seed(run, phase) for phase in phases]
        return [
            *(Cell(count_of(count), (count,)) for count in counts),
            kept_cell(run),
            *(Cell(f"{seconds:.1f}", (seconds,)) for seconds in times),
        ]

    columns = (*numbers(COUNTED), TableColumn("size", ("bytes",)), *numbers(phases))
    return Table("costs", caption, (*NAMED, *columns), rows_of(groups, cells))


def kept_cell(run: Finished) -> Cell:
    """Return the number of bytes a run keeps."""
    if run.keeps_everything:
        return Cell(ALL, largest=True)
    bytes_kept = run.result["memory"]["bytes"]
    return Cell(size(bytes_kept), (bytes_kept,))


DIFFERENCE_COLUMNS = (
    *NAMED,
    *(
        column
        for testing in TESTINGS
        for column in (
            TableColumn(
                f"difference {testing}",
                (f"difference {testing}", f"low {testing}", f"high {testing}"),
            ),
            TableColumn(f"p {testing}", (f"p {testing}", f"corrected p {testing}")),
            TableColumn(f"verdict {testing}"),
        )
    ),
)
RANK_COLUMNS = (
    TableColumn("method"),
    TableColumn("setting"),
    TableColumn("testing"),
    *numbers(("datasets", "mean rank", "critical difference", "Friedman p")),
    TableColumn("from the best"),
)


def differences_table(groups: Sequence[Group], against: str | None = None) -> Table | None:
    """Return a row per run; None if no group has several runs.

    against: the name of the run to compare with; by default, and in groups without it, the best of
    the group.
    """
    from evergraph.reports.comparing import differences_in

    shown = [group for group in groups if len(group.entries) > 1]
    if not shown:
        return None
    best = "the best of its dataset and setting"
    pairs = "all pairs of a dataset and setting"
    caption = (
        f"Difference between the average of a run and that of {against or best}, in percentage "
        "points, with its 95 % confidence interval over seeds (Student's t; paired if seeds are "
        f"shared) and p, both corrected by Holm for {'these comparisons' if against else pairs}. "
        "Better and worse require p below 0.05. One seed shows no spread, and identical "
        "repeats count as one; runs on other streams, splits or whole test sets are not comparable."
    )
    blocks = []
    for group in shown:
        by_testing = [differences_in(group, testing, against) for testing in TESTINGS]
        rows = []
        for entry in group.entries:
            row = [*named(group, entry)]
            for differences in by_testing:
                row += _difference_cells(differences, entry)
            rows.append(tuple(row))
        blocks.append(tuple(rows))
    return Table("differences", caption, DIFFERENCE_COLUMNS, tuple(blocks))


def _difference_cells(differences: GroupDifferences, entry: Entry) -> tuple[Cell, Cell, Cell]:
    from evergraph.reports.comparing import points

    if entry.name == differences.reference:
        best = differences.means[entry.name] == max(differences.means.values())
        return Cell("-"), Cell("-"), Cell("best" if best else "reference")
    compared = differences.comparisons[entry.name]
    if compared is None or not compared.pairing.shows_spread:
        gap = differences.means[entry.name] - differences.means[differences.reference]
        reason = "not comparable" if compared is None else compared.verdict
        return Cell(points(gap, signed=True), (gap, None, None)), Cell("-"), Cell(reason)
    change = compared.difference
    interval = f"{points(change.low)} to {points(change.high)}"
    p_value = compared.p_value
    return (
        Cell(
            f"{points(change.mean, signed=True)} ({interval})",
            (change.mean, change.low, change.high),
        ),
        Cell("< 0.001" if p_value < 0.001 else f"{p_value:.3f}", (change.p_value, p_value)),
        Cell(compared.verdict),
    )


def ranks_table(groups: Sequence[Group]) -> Table | None:
    """Return a row per method, setting and way of testing; None if there are too few datasets."""
    from evergraph.evaluation.statistics import LEAST_PAIRS
    from evergraph.reports.comparing import listed, standings

    ranked_settings = standings(groups)
    if not ranked_settings:
        return None
    names = sorted({name for standing in ranked_settings for name in standing.left_out})
    left_out = ""
    if names:
        left_out = f" Left out, since not run on every dataset or not comparable: {listed(names)}."
    caption = (
        "Mean ranks over datasets, 1 being the best. Methods differ if Friedman's p is below 0.05 "
        f"over at least {LEAST_PAIRS} datasets; then two of them differ if their mean ranks are "
        f"farther apart than Nemenyi's critical difference.{left_out}"
    )
    blocks = []
    for standing in ranked_settings:
        ranks, count = standing.ranks, len(standing.datasets)
        p_value = p_text(ranks.friedman_p).removeprefix("p ").removeprefix("= ")
        rows = []
        ranked_methods = zip(standing.methods, ranks.mean_ranks, strict=True)
        for index, (method, rank) in enumerate(ranked_methods):
            verdict = "worse" if ranks.differ(0, index) else "cannot tell"
            rows.append(
                (
                    Cell(method),
                    Cell(standing.setting),
                    Cell(standing.testing),
                    Cell(str(count), (count,)),
                    Cell(f"{rank:.2f}", (rank,)),
                    Cell(f"{ranks.critical_difference:.2f}", (ranks.critical_difference,)),
                    Cell(p_value, (ranks.friedman_p,)),
                    Cell(verdict if index else "best"),
                )
            )
        blocks.append(tuple(rows))
    return Table("ranks", caption, RANK_COLUMNS, tuple(blocks))
