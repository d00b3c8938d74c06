"""What Ray's workers are worth on this machine, and what they cost.

python benchmarks/speed/cluster.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import benchmarks.speed.twin_graphs  # noqa: F401 (registers products-twin and its siblings)
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, interleaved, ms, run, seconds_of, times

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.statistics import BLOCK_ROWS, count_views
from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.resources import Engine, LocalEngine, Resources
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.nn.random_features import Expansion
from evergraph.topology import SGC
from evergraph.topology.column_blocks import columns_of, encode_within

COLUMNS = 32  # of the twin's 100: the rest would be more of the same
HOPS = 2
AGREE = 1e-6
BASE = "one process, 1 thread"

Contender = Callable[[], object]


def measured_graph(*, quick: bool) -> tuple[str, Graph]:
    """Return Products' twin with some of its columns, made if it is not there yet."""
    if quick:
        return "synthetic-5000", CASES["synthetic-5000"].load()
    graph = load("products-twin")
    return "products-twin", graph.with_features(columns_of(graph.features, 0, COLUMNS))


def embedding(graph: Graph, engine: Engine, *, shared: bool = False) -> Callable[[], Tensor]:
    """Return what encodes a graph, on one thread a worker."""
    resources, topology = Resources(engine=engine), SGC(hops=HOPS)
    return lambda: encode_within(topology, graph, resources=resources, shared=shared)


def embeddings(graph: Graph, one: Engine, two: Engine) -> dict[str, Callable[[], Tensor]]:
    """Return the ways of encoding a graph that are compared."""
    return {
        BASE: embedding(graph, LocalEngine()),
        "one process, 2 threads": on_threads(2, embedding(graph, LocalEngine())),
        "Ray, 1 worker, columns": embedding(graph, one, shared=True),
        "Ray, 2 workers, columns": embedding(graph, two, shared=True),
    }


def statistics(rows: int, width: int, engine: Engine) -> Callable[[], ClassStatistics]:
    """Return what counts nodes of 100 dimensions in."""
    draw = seeded(0, "rows")
    given = torch.randn(rows, 100, generator=draw), torch.randint(10, (rows,), generator=draw)
    matrix = torch.randn(100, width, generator=draw)
    expand = Expansion(matrix, torch.zeros(width), "relu")
    resources = Resources(engine=engine)

    def count() -> ClassStatistics:
        counted = [ClassStatistics(width)], *given, torch.ones(rows)
        whole: ClassStatistics = count_views(*counted, expand=expand, resources=resources)[0]
        return whole

    return count


def all_statistics(rows: int, width: int, two: Engine) -> dict[str, Contender]:
    """Return the ways of counting that are compared."""
    return {
        BASE: statistics(rows, width, LocalEngine()),
        "one process, 2 threads": on_threads(2, statistics(rows, width, LocalEngine())),
        "Ray, 2 workers": statistics(rows, width, two),
    }


def on_threads(count: int, work: Callable[[], Any]) -> Callable[[], Any]:
    """Return work that has so many threads."""

    def wrapped() -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            return work()
        finally:
            torch.set_num_threads(before)

    return wrapped


def disagreement(contenders: Mapping[str, Callable[[], Tensor]]) -> float:
    """Return the largest difference from one process; raise if it is large."""
    expected, worst = contenders[BASE](), 0.0
    for name, contender in contenders.items():
        difference = float((contender() - expected).abs().max())
        if difference > AGREE:
            raise ValueError(f"{name} differs from one process by {difference}, more than {AGREE}")
        worst = max(worst, difference)
    return worst


def scaling_table(title: str, seconds: Mapping[str, float], notes: tuple[str, ...]) -> Table:
    """Return seconds, and how many times as fast as one process on one thread."""
    rows = [[name, ms(taken), times(seconds[BASE] / taken)] for name, taken in seconds.items()]
    return Table(title, ("who", "ms", "times as fast"), rows, notes)


def overhead_table(engine: RayEngine, started: float) -> Table:
    """Return what Ray costs before any work is done."""
    items = 200
    list(engine.map(abs, range(items)))
    empty = seconds_of(lambda: list(engine.map(abs, range(items)))) / items
    array = torch.ones(1 << 26)  # 268 MB
    put = seconds_of(lambda: list(engine.map(length, [0], shared={"array": array})))
    rows = [
        ["start Ray and two workers", ms(started)],
        ["an item of no work", ms(empty)],
        ["a GB of shared arrays, put in the store", ms(put / array.nbytes * 1e9)],
    ]
    return Table("What it costs", ("what", "ms"), rows)


def length(item: int, array: Tensor) -> int:
    """Return how long a shared array is: no work."""
    return len(array)


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    torch.set_num_threads(1)
    engines: list[RayEngine] = []
    started = seconds_of(lambda: engines.append(RayEngine(workers=2)))
    two = engines[0]
    started += seconds_of(lambda: list(two.map(abs, range(4))))
    one = RayEngine(workers=1)
    one.threads = two.threads = 1
    name, graph = measured_graph(quick=options.quick)
    ways = embeddings(graph, one, two)
    difference = disagreement(ways)
    rounds = 1 if options.quick else 3
    encoded = interleaved(ways, rounds=rounds, limit=60.0)
    rows, width = (2 * BLOCK_ROWS, 64) if options.quick else (4 * BLOCK_ROWS, 1024)
    counted = interleaved(all_statistics(rows, width, two), rounds=rounds, limit=60.0)
    work = HOPS * (graph.num_edges + graph.num_nodes) * graph.num_features
    speed = work / encoded[BASE] / 1e9
    found = [
        scaling_table(
            f"{HOPS}-hop embedding of {name}, {graph.num_nodes:,} nodes, {graph.num_edges:,} "
            f"entries, {graph.num_features} columns",
            encoded,
            (
                f"One process on one thread adds up {speed:.2f} billion entries x columns a second.",
                f"The largest difference from one process is {difference:.0e}.",
            ),
        ),
        scaling_table(
            f"Statistics of {rows:,} nodes at width {width:,}",
            counted,
            ("On one machine threads do the same without Ray; workers are for more machines.",),
        ),
        overhead_table(two, started),
    ]
    two.close()
    return found


if __name__ == "__main__":
    run("cluster", "Ray's workers", tables)
