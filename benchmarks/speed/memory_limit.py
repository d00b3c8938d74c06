"""Graphs larger than memory: embedding within a limit, and the cost of an edge.

python benchmarks/speed/memory_limit.py [--quick] [--out benchmarks/results]

The graphs are generated on first use (a minute each) and kept in the cache of datasets.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import benchmarks.speed.twin_graphs  # noqa: F401 (registers products-twin and its siblings)
from benchmarks.measure import Options, Table, in_own_process, megabytes, run, times

from evergraph.core.resources import Resources, peak_rss_bytes
from evergraph.datasets import load
from evergraph.topology import SGC, EmbeddingCache

LIMITS = {"products-twin": (2, 4, 8), "reddit-twin": (6,)}
SCALES = (0.08, 0.16, 0.32, 0.64, 0.97)
ROUNDS = 2


def main(options: Options) -> list[Table]:
    """Measure everything."""
    scale = 0.01 if options.quick else 1.0
    return [limits(scale), per_edge(0.02 if options.quick else 1.0)]


def limits(scale: float) -> Table:
    """Return peak memory and time within limits."""
    rows = []
    for name, sizes in LIMITS.items():
        found = {size: [] for size in (None, *sizes)}  # type: ignore[var-annotated]
        for _ in range(ROUNDS if scale == 1.0 else 1):
            for size in found:  # in turns: a busy neighbour disturbs all of them
                limit = None if size is None else int(size * 1e9)
                found[size].append(in_own_process(embed, name, scale, limit))
        best = {size: min(taken for taken, _ in each) for size, each in found.items()}
        for size in sizes:
            peak = max(peak for _, peak in found[size])
            ratio = times(best[size] / best[None])
            rows.append(
                (
                    name,
                    f"{size} GB",
                    megabytes(peak),
                    f"{best[size]:.2f}",
                    f"{best[None]:.2f}",
                    ratio,
                )
            )
    return Table(
        "2-hop embedding within a memory limit",
        ("graph", "limit", "peak resident MB", "s", "s without a limit", "ratio"),
        rows,
        (
            "peak: of the whole process, Python and torch included, pages of files counted.",
            "Without a limit the graph is read into memory first, which is not timed; within one "
            "it is read from its files as needed, which is. Files were in the system's cache.",
        ),
    )


def embed(name: str, scale: float, limit: int | None) -> tuple[float, int]:
    """Embed a graph; return the seconds it took and the highest resident size."""
    graph = load(name, scale=scale)
    if limit is None:
        graph = graph.in_memory()
    cache = EmbeddingCache(SGC(hops=2), resources=Resources(memory_limit=limit))
    warm(cache)
    start = time.perf_counter()
    cache(graph)
    return time.perf_counter() - start, peak_rss_bytes()


def warm(cache: EmbeddingCache) -> None:
    """Let what is compiled on first use be compiled before the clock runs."""
    small = load("synthetic", nodes=20_000, mean_degree=10.0, features=100)
    cache.topology.encode(small)


def per_edge(scale: float) -> Table:
    """Return what an adjacency entry costs on graphs of growing size."""
    rows = []
    first = 0.0
    for part in SCALES:
        share = part * scale
        edges = load("products-twin", scale=share).num_edges
        taken = [in_own_process(embed, "products-twin", share, int(4e9)) for _ in range(2)]
        cost = min(seconds for seconds, _ in taken) / (2 * edges)
        first = first or cost
        peak = max(peak for _, peak in taken)
        rows.append((f"{edges:,}", f"{cost * 1e9:.2f}", times(cost / first), megabytes(peak)))
    return Table(
        "Cost of an entry and hop, Products' twin at growing scale, limit 4 GB",
        ("entries", "ns", "to the first", "peak resident MB"),
        rows,
        ("100 features. Features that fit in the processor's cache are cheaper to gather.",),
    )


if __name__ == "__main__":
    run("memory_limit", "Graphs larger than memory", main)
