"""Importing a graph from CSV in bounded memory, against reading the same tables into memory.

python benchmarks/speed/importing.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import (
    Options,
    Table,
    extra_peak,
    in_own_process,
    megabytes,
    run,
    seconds_of,
    times,
)

from evergraph.core.resources import Resources
from evergraph.datasets.files.table_folder import read_table_folder
from evergraph.datasets.importing.importing import import_graph
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import open_graph_folder

LIMIT = 1_000_000_000
FEATURES = 16
PER_NODE = 12  # edges
FULL = ((5_000_000, "numbers"), (20_000_000, "numbers"), (5_000_000, "names"))
QUICK = ((20_000, "numbers"), (20_000, "names"))


@dataclass(frozen=True)
class Row:
    """One pair of tables, imported and read.

    Attributes:
        edges: how many the table lists.
        ids: whether they are numbers or names.
        seconds: of each way.
        peak: the most that each way's process held, in bytes.
    """

    edges: int
    ids: str
    seconds: dict[str, float]
    peak: dict[str, int]


def write_tables(folder: Path, edges: int, ids: str) -> None:
    """Write uniformly random edges, and nodes with Gaussian features in random order."""
    import pyarrow as pa
    from pyarrow import csv

    generator = np.random.default_rng(0)
    nodes = edges // PER_NODE
    numbers = generator.permutation(nodes)
    names = pa.array(numbers)
    if ids == "names":
        names = pa.array([f"node-{number}" for number in numbers.tolist()])
    columns = {f"f{i}": generator.normal(size=nodes).round(3) for i in range(FEATURES)}
    csv.write_csv(pa.table({"id": names, "label": numbers % 40} | columns), folder / "nodes.csv")
    schema = pa.schema([("source", names.type), ("target", names.type)])
    with csv.CSVWriter(str(folder / "edges.csv"), schema) as writer:
        for start in range(0, edges, 1_000_000):
            ends = generator.integers(nodes, size=(2, min(1_000_000, edges - start)))
            writer.write_table(pa.table([names.take(pa.array(row)) for row in ends], schema))


def imported(folder: Path) -> Graph:
    """Import within the limit."""
    import_graph(
        folder / "edges.csv",
        folder / "nodes.csv",
        folder / "graph",
        resources=Resources(memory_limit=LIMIT),
        overwrite=True,
    )
    return open_graph_folder(folder / "graph")


def read(folder: Path) -> Graph:
    """Read everything into memory."""
    return read_table_folder(folder).to_undirected()


WAYS: dict[str, Callable[[Path], Graph]] = {"import": imported, "in memory": read}


def once(folder: str, way: str) -> tuple[float, int]:
    """Return how long one way took, and the most that its process held, torch included."""
    held: int = psutil.Process().memory_info().rss
    seconds: list[float] = []
    rise = extra_peak(lambda: seconds.append(seconds_of(lambda: WAYS[way](Path(folder)))))
    return seconds[0], held + rise


def measure(edges: int, ids: str, *, rounds: int) -> Row:
    """Write tables, then import and read them in turns, each time in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="evergraph-") as place:
        write_tables(Path(place), edges, ids)
        taken: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
        for turn in range(rounds):
            for way in list(WAYS)[:: 1 if turn % 2 else -1]:
                taken[way].append(in_own_process(once, place, way))
        check(open_graph_folder(Path(place, "graph")), read(Path(place)))
    seconds = {way: min(second for second, _ in found) for way, found in taken.items()}
    return Row(edges, ids, seconds, {way: max(p for _, p in found) for way, found in taken.items()})


def check(first: Graph, second: Graph) -> None:
    """Raise unless both ways made the same graph."""
    for name in ("indptr", "indices", "features", "labels"):
        if not torch.equal(getattr(first, name), getattr(second, name)):
            raise ValueError(f"{name} differ")


def table(rows: list[Row]) -> Table:
    """Return one line for each pair of tables."""
    lines = [
        [
            f"{row.edges:,}",
            row.ids,
            *(f"{row.seconds[way] / row.edges * 1e6:.2f}" for way in WAYS),
            times(row.seconds["import"] / row.seconds["in memory"]),
            *(megabytes(row.peak[way]) for way in WAYS),
        ]
        for row in rows
    ]
    columns = [
        "edges",
        "ids",
        "import, s per million",
        "in memory, s per million",
        "import / in memory",
        "import, peak MB",
        "in memory, peak MB",
    ]
    notes = [
        f"memory limit {megabytes(LIMIT)} MB; {PER_NODE} edges and {FEATURES} features a node; "
        "every edge both ways",
        "both ways made the same graph; peaks are of a whole process, torch included",
    ]
    return Table("Import against reading into memory", columns, lines, notes)


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    cases = QUICK if options.quick else FULL
    rounds = 1 if options.quick else 2
    return [table([measure(edges, ids, rounds=rounds) for edges, ids in cases])]


if __name__ == "__main__":
    run("importing", "Importing tables into a graph folder", tables)
