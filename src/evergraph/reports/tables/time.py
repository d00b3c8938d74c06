"""Where the time went."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.groups import Entry, Group
from evergraph.reports.table import seconds_a_seed
from evergraph.reports.tables.record import NAMED, Cell, Table, named, numbers

PHASES = ("embed", "train", "evaluate")


def time_table(groups: Sequence[Group]) -> Table:
    """Return a row a run: seconds a phase and from start to end, the mean over seeds."""
    caption = (
        "Seconds per seed, the mean over seeds, spent to embed, to train and to evaluate; total is "
        "from start to end, loading included where one process did it all."
    )
    blocks = tuple(
        tuple((*named(group, entry), *_seconds(entry)) for entry in group.entries)
        for group in groups
    )
    return Table("time", caption, (*NAMED, *numbers((*PHASES, "total"))), blocks)


def _seconds(entry: Entry) -> list[Cell]:
    spent = [seconds_a_seed(entry.run, part) for part in (*PHASES, "total")]
    return [Cell(f"{seconds:.1f}", (seconds,)) for seconds in spent]
