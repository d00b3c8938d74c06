"""What relations and types of nodes add to the default method, on WordNet.

python benchmarks/relations.py [--quick] [--out benchmarks/results] [--threads N]

Cells that were measured are kept in build/every_graph.jsonl and not measured again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.every_graph import COLUMNS, SEEDS, cell
from benchmarks.measure import Options, Table, run

GRAPHS = (
    "wordnet",
    "wordnet with types",
    "wordnet with relations",
    "wordnet with relations and types",
)


def tables(options: Options) -> list[Table]:
    """Measure every cell, one after the other."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    values: dict[str, Any] = {}
    if options.quick:
        values = {"backbone": {"name": "view-features", "views": ["0|1|r+y"], "width": 64}}
    return [_table(GRAPHS[3:] if options.quick else GRAPHS, seeds, values)]


def _table(graphs: Sequence[str], seeds: Sequence[int], values: dict[str, Any]) -> Table:
    rows = []
    for graph in graphs:
        told = [graph]
        for column in COLUMNS:
            cells = [cell("once", graph, column, seed, values) for seed in seeds]
            spread = max(c.accuracy for c in cells) - min(c.accuracy for c in cells)
            told.append(f"{mean(c.accuracy for c in cells):.1f} ({spread:.1f})")
        rows.append(told)
    return Table(
        "Balanced accuracy of `auto` after the last task (range over seeds)",
        ("", *(f"tested {column}" for column in COLUMNS)),
        rows,
        (
            f"Test nodes, {len(seeds)} seeds with a split each. All tasks are learned at once, "
            "which gives what learning them one by one does.",
        ),
    )


if __name__ == "__main__":
    run("relations", "Relations and types of nodes", tables)
