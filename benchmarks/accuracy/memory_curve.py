"""What a byte of memory buys: accuracy of methods whose memory is limited, from 1 to 100 MB.

python benchmarks/accuracy/memory_curve.py [--quick] [--threads N] [--workers N] [--minutes 0]

Cells are kept in build/every_graph.jsonl, see ``every_graph``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy.every_graph import Cell, Job, cells
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, run

GRAPHS = ("computers", "actor", "blogcatalog")
METHODS = ("auto", "analytic", "tem")
SIZES = (1, 2, 5, 10, 20, 50, 100)  # MB
CHOICE_WIDTH = 1024  # of ``analytic``


def values_of(method: str, megabytes: float, classes: int, dims: int) -> Mapping[str, Any]:
    """Return the configuration of a method that keeps so much."""
    room = megabytes * 1e6
    if method == "auto":
        return {"method": {"name": "auto", "memory": f"{megabytes}MB"}}
    if method == "tem":  # float32 embeddings, labels, ids and ranks
        kept = max(int(room / (classes * (4 * dims + 24))), 1)
        return {"method": "tem", "memory": {"budget": kept}}
    # The triangle of a Gram matrix, and of one for validation nodes that is at most so wide.
    width = max(int((room / 4) ** 0.5), int(max(room / 2 - CHOICE_WIDTH**2, 0) ** 0.5))
    return {"method": "analytic", "backbone": {"name": "random-features", "width": width}}


def tables(options: Options) -> list[Table]:
    """Return accuracy over bytes, a table for each graph."""
    names, sizes = (("synthetic-500",), SIZES[:2]) if options.quick else (GRAPHS, SIZES)
    jobs = {}
    for name in names:
        if CASES[name].missing:
            continue
        graph = CASES[name].load()
        known = int(graph.labels.max()) + 1, graph.num_features
        for method in METHODS:
            values = [values_of(method, size, *known) for size in sizes]
            jobs[name, method] = [Job("stream", name, "local", 0, each) for each in values]
    everything = [job for row in jobs.values() for job in row]
    found = cells(everything, workers=options.workers, minutes=options.minutes)
    rows = {
        (name, method): [method, *(_shown(found.get(job.key)) for job in row)]
        for (name, method), row in jobs.items()
    }
    heads, note = ("", *(f"{size} MB" for size in sizes)), "Test nodes, seed 0, task by task."
    title = "{}, tested local: class-balanced accuracy (MB kept)"
    return [
        Table(title.format(name), heads, [rows[name, method] for method in METHODS], (note,))
        for name in dict.fromkeys(graph for graph, _ in jobs)
    ]


def _shown(cell: Cell | None) -> str:
    return "-" if cell is None else f"{cell.accuracy:.1f} ({cell.kept / 1e6:.1f})"


if __name__ == "__main__":
    run("memory_curve", "What a byte of memory buys", tables)
