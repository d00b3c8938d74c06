"""Tables of costs: memory, time and machine, and the best accuracy within a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from evergraph.reports.runs import Entry, Finished, Group, metric_of
from evergraph.reports.tables.record import (
    NAMED,
    Cell,
    Table,
    TableColumn,
    named,
    numbers,
    own_names,
)
from evergraph.reports.units import (
    ALL,
    best_within,
    bytes_kept,
    count_of,
    families,
    has_family,
    kept_bytes,
    learning_seconds,
    seconds_a_seed,
    size,
)

COUNTED = ("samples", "gradients", "importance", "floats", "edges")
MEMORY_COLUMNS = (*NAMED, *numbers((*COUNTED, "bytes")))


def memory_table(groups: Sequence[Group]) -> Table:
    """Return one row per run: values of each kind, their sum, edges and bytes."""
    caption = (
        "Kept between tasks: samples, gradients and importance are float32 values as the paper "
        "counts them, floats is their sum, edges are adjacency entries, bytes are the actual size. "
        "A method that receives all earlier tasks again keeps all data, which is not counted."
    )
    blocks = tuple(
        tuple((*named(group, entry), *_kept(entry.run)) for entry in group.entries)
        for group in groups
    )
    return Table("memory", caption, MEMORY_COLUMNS, blocks)


def memory_comparison(runs: Sequence[Finished]) -> Table:
    """Return the same for runs outside a report, in their order."""
    caption = "kept between tasks: float32 values as the paper counts them, edges, bytes"
    rows = tuple((*own_names(run), *_kept(run)) for run in runs)
    return Table("memory", caption, MEMORY_COLUMNS, (rows,))


def _kept(run: Finished) -> tuple[Cell, ...]:
    counts = [run.result["memory"].get(part, 0) for part in COUNTED]
    return (*(Cell(count_of(count), (count,)) for count in counts), kept_cell(run))


def kept_cell(run: Finished) -> Cell:
    """Return the number of bytes a run keeps."""
    if run.keeps_everything:
        return Cell(ALL, most=True)
    return Cell(kept_bytes(run), (run.result["memory"]["bytes"],))


PHASES = ("embed", "train", "evaluate")


def time_table(groups: Sequence[Group]) -> Table:
    """Return a row per run: seconds by phase and in total, the mean over seeds."""
    caption = (
        "Seconds per seed, the mean over seeds, for embedding, training and evaluation; total is "
        "from start to end, including loading if one process did it all."
    )
    blocks = tuple(
        tuple((*named(group, entry), *_seconds(entry)) for entry in group.entries)
        for group in groups
    )
    return Table("time", caption, (*NAMED, *numbers((*PHASES, "total"))), blocks)


def _seconds(entry: Entry) -> list[Cell]:
    spent = [seconds_a_seed(entry.run, part) for part in (*PHASES, "total")]
    return [Cell(f"{seconds:.1f}", (seconds,)) for seconds in spent]


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


def versions_table(groups: Sequence[Group]) -> Table:
    """Return a row for each combination of versions, with its number of runs."""
    made = [entry.run.result["versions"] for group in groups for entry in group.entries]
    names = list(dict.fromkeys(name for versions in made for name in versions))
    times = Counter(tuple(versions.get(name, "-") for name in names) for versions in made)
    rows = tuple(
        (*map(Cell, versions), Cell(str(count), (count,)))
        for versions, count in sorted(times.items())
    )
    columns = (*map(TableColumn, names), *numbers(("runs",)))
    caption = "Versions of the software that made the runs."
    return Table("versions", caption, columns, (rows,) if rows else ())


SIZES = {"1 MB": 1e6, "10 MB": 1e7, "100 MB": 1e8}
TIMES = {"fastest": 1.0, "10 x fastest": 10.0}
TESTINGS = ("local", "global")
_BUDGETS = tuple(
    TableColumn(f"{limit} {testing}", (f"{limit} {testing}",))
    for testing in TESTINGS
    for limit in (*SIZES, *TIMES)
)


def budgets_table(groups: Sequence[Group]) -> Table | None:
    """Return a row per family; None if every family is a single run."""
    if not any(map(has_family, groups)):
        return None
    caption = (
        f"The best average {_measured(groups)} in percent, of a family of runs within a limit of "
        "bytes kept, and within the learning time (embed and train, one seed) of the group's "
        "fastest run and ten times that; - if no run is within the limit. Methods that receive "
        "earlier data again keep all of it, more than any limit here."
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
