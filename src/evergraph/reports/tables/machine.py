"""What the runs ran on, as far as they tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.reports.groups import Entry, Group
from evergraph.reports.table import size
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named, numbers

UNTOLD = "-"


def machine_table(groups: Sequence[Group]) -> Table:
    """Return one row per run: the machine if it is known, the device asked for, the peak memory."""
    caption = (
        "Where the runs ran: the machine as far as their results tell, the device they asked for "
        "and the largest resident memory of a process that took part."
    )
    columns = (
        *NAMED, Column("machine"), Column("device"), *numbers(("peak bytes",)),
    )  # fmt: skip
    blocks = tuple(
        tuple((*named(group, entry), *_ran_on(entry)) for entry in group.entries)
        for group in groups
    )
    return Table("machine", caption, columns, blocks)


def _ran_on(entry: Entry) -> tuple[Cell, ...]:
    result = entry.run.result
    peak = result.get("peak_rss_bytes")
    device = str(result["config"].get("device", UNTOLD))
    told = Cell(size(peak), (peak,)) if peak else Cell(UNTOLD)
    return Cell(_told(result.get("machine"))), Cell(device), told


def _told(machine: Any) -> str:
    """Return a record of a machine as one line.

    >>> _told({"cpus": 2, "gpu": "H200"}), _told(None)
    ('cpus 2, gpu H200', '-')
    """
    if isinstance(machine, dict):
        return ", ".join(f"{name} {value}" for name, value in machine.items())
    return UNTOLD if machine is None else str(machine)
