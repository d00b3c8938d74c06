"""What a byte of memory buys: accuracy of methods whose memory is limited, from 1 to 100 MB.

python benchmarks/accuracy/memory_curve.py [--quick] [--threads N] [--workers N] [--minutes 0]

Cells are kept in build/every_graph.jsonl, see ``every_graph``. A whole run draws
docs/images/memory-curve.svg as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.accuracy.every_graph import Cell, Job, cells
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, run
from matplotlib import pyplot

GRAPHS = ("computers", "actor", "blogcatalog")
METHODS = ("auto", "analytic", "tem")
SIZES = (1, 2, 5, 10, 20, 50, 100)  # MB
CHOICE_WIDTH = 1024  # of ``analytic``
COLOURS = {"auto": "#0b8f82", "analytic": "#7570b3", "tem": "#d95f02"}
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "memory-curve.svg"


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
    if not options.quick:
        draw(
            {key: [found[job.key] for job in row if job.key in found] for key, row in jobs.items()}
        )
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


def draw(measured: Mapping[tuple[str, str], Sequence[Cell]]) -> None:
    """Draw accuracy over the bytes kept, a panel for each graph."""
    names = list(dict.fromkeys(name for name, _ in measured))
    with pyplot.rc_context({"svg.hashsalt": "memory", "svg.fonttype": "none", "font.size": 8}):
        figure, panels = pyplot.subplots(1, len(names), figsize=(7.5, 2.4), layout="constrained")
        for panel, name in zip(panels, names, strict=True):
            for method in METHODS:
                cells_here = measured[name, method]
                kept = [cell.kept / 1e6 for cell in cells_here]
                right = [cell.accuracy for cell in cells_here]
                panel.plot(kept, right, "o-", color=COLOURS[method], label=method, markersize=3)
            panel.set(title=name, xscale="log", xlabel="MB kept")
            panel.xaxis.set_major_formatter("{x:g}")
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("accuracy, %")
        panels[-1].legend()
        figure.savefig(PICTURE, facecolor="white", metadata={"Date": None})
        pyplot.close(figure)


def _shown(cell: Cell | None) -> str:
    return "-" if cell is None else f"{cell.accuracy:.1f} ({cell.kept / 1e6:.1f})"


if __name__ == "__main__":
    run("memory_curve", "What a byte of memory buys", tables)
