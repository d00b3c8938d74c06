"""What each run keeps between tasks: the paper's memory table."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.groups import Entry, Group
from evergraph.reports.memory_table import MEMORY_COLUMNS, count_of
from evergraph.reports.table import ALL, kept_bytes
from evergraph.reports.tables.record import NAMED, Cell, Table, named, numbers

COUNTED = MEMORY_COLUMNS[len(NAMED) : -1]


def memory_table(groups: Sequence[Group]) -> Table:
    """Return one row per run: values of each kind, their sum, edges and bytes."""
    caption = (
        "What is kept between tasks: samples, gradients and importance are float32 values as the "
        "paper counts them, floats is their sum, edges are adjacency entries, bytes are what is "
        "really held. A method that is given all earlier tasks again keeps all data, which is not "
        "counted."
    )
    blocks = tuple(
        tuple((*named(group, entry), *_kept(entry)) for entry in group.entries) for group in groups
    )
    return Table("memory", caption, (*NAMED, *numbers((*COUNTED, "bytes"))), blocks)


def _kept(entry: Entry) -> tuple[Cell, ...]:
    kept = entry.run.result["memory"]
    counts = [kept.get(part, 0) for part in COUNTED]
    cells = [Cell(count_of(count), (count,)) for count in counts]
    return (*cells, kept_cell(entry))


def kept_cell(entry: Entry) -> Cell:
    """Return the bytes that a run keeps."""
    if entry.run.keeps_everything:
        return Cell(ALL, most=True)
    return Cell(kept_bytes(entry.run), (entry.run.result["memory"]["bytes"],))
