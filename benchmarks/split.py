"""Embeddings by parts: what it costs that they are written to files, and that rows lie apart.

python benchmarks/split.py [--quick] [--out benchmarks/results]

Products' twin is generated on first use (a minute) and kept in the cache of datasets.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, in_own_process, megabytes, peak_of, run, times

from evergraph.core.resources import Resources
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.graphs.split_folder import SplitFolder, write_split
from evergraph.topology import SGC
from evergraph.topology.column_blocks import encode_within
from evergraph.topology.embedding_folder import embed

TWIN = "products-twin"
BASE = "encode_within"
# Who embeds: in how many parts the graph is split, 0 if it is not; and what rows are sent in.
WAYS = {
    BASE: (None, "float32"),
    "embed": (0, "float32"),
    "embed, 4 parts": (4, "float32"),
    "embed, 16 parts": (16, "float32"),
    "embed, 4 parts, half rows": (4, "float16"),
}
LIMIT = 2 * 10**9
ROUNDS = 3


def main(options: Options) -> list[Table]:
    """Measure everything."""
    scale = 0.01 if options.quick else 0.2
    return [embeddings(scale, rounds=1 if options.quick else ROUNDS)]


def embeddings(scale: float, *, rounds: int) -> Table:
    """Return CPU seconds and peak memory of each way, against one that writes nothing."""
    with tempfile.TemporaryDirectory() as place:
        for parts in {parts for parts, _ in WAYS.values() if parts}:
            write_split(load(TWIN, scale=scale), Path(place, f"{parts}"), parts=parts)
        taken: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
        for _ in range(rounds):  # in turns: a busy neighbour disturbs all of them
            for way in WAYS:
                taken[way].append(in_own_process(measured, way, scale, place))
    best = {way: min(seconds for seconds, _ in each) for way, each in taken.items()}
    rows = [
        (way, f"{best[way]:.2f}", times(best[way] / best[BASE]), megabytes(max(p for _, p in each)))
        for way, each in taken.items()
    ]
    return Table(
        f"Two hops of SGC on {TWIN} at scale {scale:g}, limit {LIMIT / 1e9:g} GB",
        ("way", "CPU s", f"to {BASE}", "peak resident MB"),
        rows,
        (
            "CPU s: of all threads, system time included; the least of all rounds.",
            f"{BASE} returns embeddings; embed writes them to a graph folder with the adjacency, "
            "waits for the disk, and sums all files up.",
        ),
    )


def measured(way: str, scale: float, place: str) -> tuple[float, int]:
    """Embed in one way; return the CPU seconds it took and the highest resident size."""
    parts, rows = WAYS[way]
    topology, resources = SGC(hops=2, rows=rows), Resources(memory=LIMIT)  # type: ignore[arg-type]
    topology.encode(load("synthetic", nodes=20_000, mean_degree=60.0, features=100))  # compiled
    source = SplitFolder.open(Path(place, f"{parts}")) if parts else load(TWIN, scale=scale)
    start = time.process_time()

    def work() -> None:
        if parts is None:
            assert isinstance(source, Graph)
            encode_within(topology, source, resources=resources)
            return
        with tempfile.TemporaryDirectory(dir=place) as out:
            embed(source, Path(out, "out"), topology=topology, resources=resources)

    _, peak = peak_of(work)
    return time.process_time() - start, peak


if __name__ == "__main__":
    run("split", "Embeddings by parts", main)
