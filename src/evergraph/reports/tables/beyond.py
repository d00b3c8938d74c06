"""Beyond the last task's accuracy: along the way, how sure, what is new, what carries over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.reports.runs import Entry, Group, metric_of
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named
from evergraph.reports.units import deviations, percent

MEASURES = (
    ("AAA", "anytime_accuracy"), ("ECE", "calibration_error"),
    ("AUROC", "rejection_auroc"), ("FWT", "forward_transfer"),
    ("AP", "average_precision"), ("MAE", "mae"),
)  # fmt: skip
METRICS = tuple(
    (short, name, testing) for testing in ("local", "global") for short, name in MEASURES
)


def beyond_table(groups: Sequence[Group]) -> Table:
    """Return a row for each run and a column for each measure that any run has."""
    entries = [entry for group in groups for entry in group.entries]
    told = [metric for metric in METRICS if any(_spread(e, *metric[1:]) for e in entries)]
    caption = (
        f"AAA: average {metric_of(e.run for e in entries)}, mean over all tests; ECE: expected "
        "calibration error, lower is better; AUROC: unknown nodes told from known ones, 50 is "
        "guessing; FWT: accuracy on known classes of the next task, above guessing"
        f"{_of_targets(told)}. In percent{deviations(e.run for e in entries)}"
        "; - where not measured or without meaning."
    )
    columns = [Column(f"{m} {t}", (f"{m} {t} mean", f"{m} {t} std")) for m, _, t in told]
    blocks = tuple(
        tuple(
            (*named(group, entry), *(_cell(_spread(entry, n, t), n) for _, n, t in told))
            for entry in group.entries
        )
        for group in groups
    )
    return Table("beyond", caption, (*NAMED, *columns), blocks)


def _spread(entry: Entry, name: str, testing: str) -> dict[str, Any] | None:
    """Return a measure's mean and deviation; runs of earlier versions know accuracies alone."""
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
