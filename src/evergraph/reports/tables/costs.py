"""Tables of costs: memory, time and machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evergraph.reports import units
from evergraph.reports.runs import Finished, Group, alone, runs_of
from evergraph.reports.tables.record import NAMED, Cell, Table, TableColumn, numbers, rows_of

COUNTED = ("samples", "gradients", "importance", "floats", "edges")


def memory_table(groups: Sequence[Group]) -> Table:
    """Return one row per run: values of each kind, their sum, edges and bytes."""
    caption = (
        "Kept between tasks: samples, gradients and importance are float32 values as the paper "
        "counts them, floats is their sum, edges are adjacency entries, bytes are the actual size. "
        "A method that receives all earlier tasks again keeps all data, which is not counted."
    )

    def cells(run: Finished) -> list[Cell]:
        counts = [run.result["memory"].get(part, 0) for part in COUNTED]
        return [*(Cell(units.count_of(count), (count,)) for count in counts), kept_cell(run)]

    return Table("memory", caption, (*NAMED, *numbers((*COUNTED, "bytes"))), rows_of(groups, cells))


def memory_comparison(runs: Sequence[Finished]) -> Table:
    """Return the same for runs outside a report, in their order."""
    caption = "kept between tasks: float32 values as the paper counts them, edges, bytes"
    return replace(memory_table(alone(runs)), caption=caption)


def kept_cell(run: Finished) -> Cell:
    """Return the number of bytes a run keeps."""
    if run.keeps_everything:
        return Cell(units.ALL, most=True)
    kept = run.result["memory"]["bytes"]
    return Cell(units.size(kept), (kept,))


def time_table(groups: Sequence[Group]) -> Table:
    """Return a row per run: seconds by phase and in total, the mean over seeds."""
    caption = (
        "Seconds per seed, the mean over seeds, for embedding, training and evaluation; total is "
        "from start to end, including loading if one process did it all."
    )
    parts = ("embed", "train", "evaluate", "total")

    def cells(run: Finished) -> list[Cell]:
        spent = [units.seconds_a_seed(run, part) for part in parts]
        return [Cell(f"{seconds:.1f}", (seconds,)) for seconds in spent]

    return Table("time", caption, (*NAMED, *numbers(parts)), rows_of(groups, cells))


UNTOLD = "-"


def machine_table(groups: Sequence[Group]) -> Table:
    """Return one row per run: the machine if known, the requested device, the peak memory."""
    caption = (
        "The machine as far as it is recorded, the requested device, and the largest resident "
        "memory of a participating process."
    )
    columns = (
        *NAMED, TableColumn("machine"), TableColumn("device"), *numbers(("peak bytes",)),
    )  # fmt: skip

    def cells(run: Finished) -> tuple[Cell, ...]:
        peak = run.result.get("peak_rss_bytes")
        device = str(run.result["config"].get("device", UNTOLD))
        told = Cell(units.size(peak), (peak,)) if peak else Cell(UNTOLD)
        return Cell(_told(run.result.get("machine"))), Cell(device), told

    return Table("machine", caption, columns, rows_of(groups, cells))


def _told(machine: Any) -> str:
    """Return a record of a machine as one line.

    >>> _told({"cpus": 2, "gpu": "H200"}), _told(None)
    ('cpus 2, gpu H200', '-')
    """
    if isinstance(machine, dict):
        return ", ".join(f"{name} {value}" for name, value in machine.items())
    return UNTOLD if machine is None else str(machine)


def versions_table(groups: Sequence[Group]) -> Table:
    """Return a row for each combination of versions, with its number of runs."""
    made = [run.result["versions"] for run in runs_of(groups)]
    names = list(dict.fromkeys(name for versions in made for name in versions))
    times = Counter(tuple(versions.get(name, "-") for name in names) for versions in made)
    rows = tuple(
        (*map(Cell, versions), Cell(str(count), (count,)))
        for versions, count in sorted(times.items())
    )
    columns = (*map(TableColumn, names), *numbers(("runs",)))
    caption = "Versions of the software that made the runs."
    return Table("versions", caption, columns, (rows,) if rows else ())
