"""All runs: how well, how much kept, how long."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.runs import Entry, Group
from evergraph.reports.table import deviations, percent, seconds_a_seed
from evergraph.reports.tables.costs import kept_cell
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named, ranked

METRICS = tuple(
    (short, metric, testing)
    for testing in ("local", "global")
    for short, metric in (("AA", "average_accuracy"), ("AF", "average_forgetting"))
)
COLUMNS = (
    *NAMED,
    *(Column(f"{m} {t}", (f"{m} {t} mean", f"{m} {t} std")) for m, _, t in METRICS),
    Column("memory", ("memory bytes",)),
    Column("seconds per seed", ("seconds per seed",)),
)


def summary_table(groups: Sequence[Group]) -> Table:
    """Return a row a run; accuracies are class-balanced, percent in text and fractions in CSV."""
    runs = [entry.run for group in groups for entry in group.entries]
    caption = (
        "Average accuracy (AA) and average forgetting (AF) after the last task, class-balanced, "
        f"in percent{deviations(runs)}; best bold, second best underlined, per dataset and "
        "setting. Seconds are from start to end, the mean over seeds."
    )
    return Table("summary", caption, COLUMNS, tuple(_block(group) for group in groups))


def _block(group: Group) -> tuple[tuple[Cell, ...], ...]:
    columns = [
        ranked([_spread(entry, metric, testing) for entry in group.entries])
        for _, metric, testing in METRICS
    ]
    accuracies = zip(*columns, strict=True)
    return tuple(
        (*named(group, entry), *cells, *_costs(entry))
        for entry, cells in zip(group.entries, accuracies, strict=True)
    )


def _spread(entry: Entry, metric: str, testing: str) -> Cell:
    spread = entry.run.result[metric][testing]["balanced"]
    return Cell(percent(spread), (spread["mean"], spread["std"]))


def _costs(entry: Entry) -> tuple[Cell, Cell]:
    seconds = seconds_a_seed(entry.run, "total")
    return kept_cell(entry), Cell(f"{seconds:.1f}", (seconds,))
