"""What each family of runs reaches within the same memory and the same time."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.envelope import (
    best_within,
    bytes_kept,
    families,
    has_family,
    learning_seconds,
)
from evergraph.reports.runs import Entry, Group, metric_of
from evergraph.reports.tables.record import NAMED, Cell, Column, Table

SIZES = {"1 MB": 1e6, "10 MB": 1e7, "100 MB": 1e8}
TIMES = {"fastest": 1.0, "10 x fastest": 10.0}
TESTINGS = ("local", "global")
_BUDGETS = tuple(
    Column(f"{limit} {testing}", (f"{limit} {testing}",))
    for testing in TESTINGS
    for limit in (*SIZES, *TIMES)
)


def budgets_table(groups: Sequence[Group]) -> Table | None:
    """Return a row a family; None where every family is a single run, with nothing to choose."""
    if not any(map(has_family, groups)):
        return None
    caption = (
        f"The best average {_measured(groups)} in percent, of a family of runs within so "
        "many bytes kept, and within the learning time (embed and train, one seed) of the group's "
        "fastest run and ten times that; - where no run is so small or so fast. Methods that are "
        "given earlier data again keep all of it, more than any budget here."
    )
    blocks = tuple(_budget_block(group) for group in groups)
    return Table("budgets", caption, (*NAMED, *_BUDGETS), blocks)


def _measured(groups: Sequence[Group]) -> str:
    metric = metric_of(entry.run for group in groups for entry in group.entries)
    return "accuracy, class-balanced and" if metric == "accuracy" else f"{metric},"


def _budget_block(group: Group) -> tuple[tuple[Cell, ...], ...]:
    fastest = min(learning_seconds(entry) for entry in group.entries)
    return tuple(
        (Cell(name), Cell(group.dataset), Cell(group.setting), *_cells(runs, fastest))
        for name, runs in families(group).items()
    )


def _cells(runs: Sequence[Entry], fastest: float) -> list[Cell]:
    cells = []
    for testing in TESTINGS:
        accuracies = [run.accuracy(testing) / 100 for run in runs]
        by_size = list(zip(map(bytes_kept, runs), accuracies, strict=True))
        by_time = list(zip(map(learning_seconds, runs), accuracies, strict=True))
        cells += [_budget_cell(best_within(by_size, limit)) for limit in SIZES.values()]
        cells += [_budget_cell(best_within(by_time, times * fastest)) for times in TIMES.values()]
    return cells


def _budget_cell(accuracy: float | None) -> Cell:
    return Cell("-") if accuracy is None else Cell(f"{100 * accuracy:.1f}", (accuracy,))
