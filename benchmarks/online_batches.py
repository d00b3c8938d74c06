"""What a small batch costs while the graph grows: with what is in sight, and with all of the graph.

python benchmarks/online_batches.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, interleaved, run, times

from evergraph.datasets import load
from evergraph.streams import GraphStream
from evergraph.topology import SGC

HOPS, BATCHES = 2, 5
GRAPH: dict[str, Any] = {
    "classes": 8, "features": 64, "mean_degree": 4.0, "degree_exponent": None,
}  # fmt: skip
SIZES = {False: (4_000, 16_000, 64_000), True: (500, 2_000)}


def last_batches(stream: GraphStream, sight: int | None) -> Callable[[], object]:
    """Return what opens the last few batches of a stream and embeds them."""

    def work() -> None:
        for step in range(len(stream) - BATCHES, len(stream)):
            task = stream.open(step, sight=sight)
            SGC(hops=HOPS).encode(task.graph)[task.train]

    return work


def row(nodes: int) -> list[str]:
    """Measure one graph; return a line of the table."""
    graph = load("synthetic", nodes=nodes, **GRAPH)
    stream = GraphStream(graph, by="online", edges="all")
    contenders = {"near": last_batches(stream, HOPS), "all": last_batches(stream, None)}
    best = interleaved(contenders, rounds=3, clock=time.process_time)
    seen = stream.open(len(stream) - 1, sight=HOPS).graph.num_nodes
    near, whole = (1000 * best[name] / BATCHES for name in contenders)
    return [f"{nodes:,}", f"{len(stream):,}", f"{seen:,}", f"{near:.2f}", f"{whole:.2f}",
            times(whole / near)]  # fmt: skip


def tables(options: Options) -> list[Table]:
    """Measure graphs of one degree that grow."""
    rows = []
    for nodes in SIZES[options.quick]:
        rows.append(row(nodes))
        print(", ".join(rows[-1]), file=sys.stderr)
    columns = ("nodes", "batches", "nodes in sight", "ms a batch in sight", "ms with all", "ratio")
    notes = (
        f"the last {BATCHES} batches of 10 training nodes, 64 features, degree 4: cut out of the "
        f"graph and embedded over {HOPS} hops, CPU milliseconds of all threads, the best of three "
        "rounds; embeddings of the batch are the same both ways (tests/streams/test_online.py).",
    )
    return [Table("A batch, with what is in sight and with all of the graph", columns, rows, notes)]


if __name__ == "__main__":
    run("online_batches", "Batches of an online stream", tables)
