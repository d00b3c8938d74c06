"""The one number of a run that its protocol's paper reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evergraph.reports.runs import Finished, Group
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named, own_names
from evergraph.reports.units import deviations, percent

COLUMNS = (
    *NAMED,
    Column("tested"),
    *(Column(short, (f"{short} mean", f"{short} std")) for short in ("AA", "AF")),
)


def headline_table(groups: Sequence[Group]) -> Table | None:
    """Return a row for each run under a protocol; None where there is none."""
    entries = [(group, entry) for group in groups for entry in group.entries]
    rows = [
        (*named(group, entry), *_cells(entry.run))
        for group, entry in entries
        if entry.run.protocol is not None
    ]
    return _table(rows, [entry.run for _, entry in entries])


def headlines(runs: Sequence[Finished]) -> Table | None:
    """Return the same for runs that are in no report, in their order."""
    rows = [(*own_names(run), *_cells(run)) for run in runs if run.protocol is not None]
    return _table(rows, runs)


def _table(rows: Sequence[tuple[Cell, ...]], runs: Iterable[Finished]) -> Table | None:
    if not rows:
        return None
    caption = (
        "Average accuracy (AA) and average forgetting (AF) after the last task, tested and "
        f"averaged as the protocol's paper reports them, in percent{deviations(runs)}."
    )
    return Table("headline", caption, COLUMNS, (tuple(rows),))


def _cells(run: Finished) -> tuple[Cell, ...]:
    testing, averaging = run.headline
    spreads = [
        run.result[metric][testing][averaging]
        for metric in ("average_accuracy", "average_forgetting")
    ]
    numbers = (Cell(percent(spread), (spread["mean"], spread["std"])) for spread in spreads)
    return (Cell(f"{testing}, {averaging}"), *numbers)
