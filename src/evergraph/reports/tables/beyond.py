"""Beyond the last task's accuracy: along the way, how sure, what is new, what carries over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.reports.runs import Entry, Group
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named
from evergraph.reports.units import deviations, percent

MEASURES = (
    ("AUC", "area_under_curve"), ("ECE", "calibration_error"),
    ("AUROC", "rejection_auroc"), ("FWT", "forward_transfer"),
)  # fmt: skip
METRICS = tuple(
    (short, name, testing) for testing in ("local", "global") for short, name in MEASURES
)


def beyond_table(groups: Sequence[Group]) -> Table | None:
    """Return a row for each run and a column for each measure; None where there are no measures."""
    entries = [entry for group in groups for entry in group.entries]
    told = [metric for metric in METRICS if any(_spread(e, *metric[1:]) for e in entries)]
    if not told:
        return None
    caption = (
        "AUC: average accuracy, mean over all tasks; ECE: expected calibration error, lower is "
        "better; AUROC: unknown nodes told from known ones, 50 is guessing; FWT: accuracy on known "
        f"classes of the next task, above guessing. In percent{deviations(e.run for e in entries)}"
        "; - where not measured or without meaning."
    )
    columns = [Column(f"{m} {t}", (f"{m} {t} mean", f"{m} {t} std")) for m, _, t in told]
    blocks = tuple(
        tuple(
            (*named(group, entry), *(_cell(_spread(entry, n, t)) for _, n, t in told))
            for entry in group.entries
        )
        for group in groups
    )
    return Table("beyond", caption, (*NAMED, *columns), blocks)


def _spread(entry: Entry, name: str, testing: str) -> dict[str, Any] | None:
    """Return a measure's mean and deviation; runs of earlier versions know none."""
    result: dict[str, Any] = entry.run.result
    if name == "area_under_curve":
        return result[name][testing]["balanced"] if name in result else None
    spread: dict[str, Any] | None = result.get("measures", {}).get(testing, {}).get(name)
    return spread


def _cell(spread: dict[str, Any] | None) -> Cell:
    return Cell("-") if spread is None else Cell(percent(spread), (spread["mean"], spread["std"]))
