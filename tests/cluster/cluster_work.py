"""What is measured on a cluster: run on a node, reads kinds of work from stdin, answers in JSON.

python tests/cluster/cluster_work.py HOST:PORT [SCALE]

Each line of stdin is a kind of work, with "local:" before it to do it in this process. The answer
says how long it took, a digest of the numbers, how many bytes went over all links, by how many
workers. Arrays are held in memory: they have to be sent, as where machines share no files.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import benchmarks.speed.twin_graphs  # noqa: F401 (registers products-twin and its siblings)

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.statistics import BLOCK_ROWS, count_views
from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.resources import Engine, LocalEngine, Resources
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph, estimate_reach_sizes
from evergraph.graphs.reachability import search_costs, searched_sizes
from evergraph.nn.random_features import Expansion
from evergraph.topology import SGC
from evergraph.topology.column_blocks import encode_within

HOPS = 2
NAPS = 3
LINKS = Path("/sys/class/net")


class Kinds:
    """Kinds of work on one graph.

    Args:
        scale: of Products' twin.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        mapped = load("products-twin", scale=scale)
        arrays = {name: getattr(mapped, name) for name in ("indptr", "indices", "features")}
        held = {name: array.as_subclass(Tensor).clone() for name, array in arrays.items()}
        self.graph: Graph = replace(mapped, **held)

    def columns(self, engine: Engine) -> Iterable[Tensor]:
        """Embeddings, workers sharing the columns."""
        resources = Resources(engine=engine)
        return [encode_within(SGC(hops=HOPS), self.graph, resources=resources, shared=True)]

    def statistics(self, engine: Engine) -> Iterable[Tensor]:
        """Statistics of the closed form, of all nodes and at least of six blocks."""
        rows, width, draw = max(self.graph.num_nodes, 6 * BLOCK_ROWS), 512, seeded(0, "rows")
        given = torch.randn(rows, 100, generator=draw), torch.arange(rows) % 10, torch.ones(rows)
        expand = Expansion(torch.randn(100, width, generator=draw), torch.zeros(width), "relu")
        resources = Resources(engine=engine)
        (counted,) = count_views(
            [ClassStatistics(width)], *given, expand=expand, resources=resources
        )
        return counted.state().values()

    def estimated(self, engine: Engine) -> Iterable[Tensor]:
        """Estimated reach of every node."""
        resources, everyone = Resources(engine=engine), torch.arange(self.graph.num_nodes)
        return [estimate_reach_sizes(self.graph, everyone, hops=HOPS, resources=resources)]

    def exact(self, engine: Engine) -> Iterable[Tensor]:
        """Exact reach of one node in eight."""
        some = torch.arange(0, self.graph.num_nodes, 8)
        costs = search_costs(self.graph, some, hops=HOPS)
        resources = Resources(engine=engine)
        return [searched_sizes(self.graph, some, hops=HOPS, costs=costs, resources=resources)]

    def naps(self, engine: Engine) -> Iterable[Tensor]:
        """Work that takes its time and makes arrays: for what happens in the middle of it."""
        return engine.map(nap, range(8 * NAPS), shared={"array": torch.arange(1 << 18)})

    def warm(self, engine: Engine) -> Iterable[Tensor]:
        """Everything small, so that every worker has started and compiled what it needs."""
        list(engine.map(imported, range(8 * engine.workers)))
        return []


def nap(item: int, array: Tensor) -> Tensor:
    """Take a second, and return an array that stays in the store of the worker's machine."""
    time.sleep(1.0)
    return array + item


def imported(item: int) -> None:
    """Have a worker load and compile what it will need; long enough for others to get some."""
    small = load("synthetic", nodes=2000, features=8)
    SGC(hops=2).smooth(small)
    some = torch.arange(64)
    searched_sizes(small, some, hops=2, costs=search_costs(small, some, hops=2))
    estimate_reach_sizes(small, some, hops=2)
    time.sleep(0.5)


def digest(tensors: Iterable[Tensor]) -> str:
    """Return what two sets of numbers have in common only if all their bits are the same."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def sent() -> int:
    """Return how many bytes all nodes have sent over their links."""
    counters = LINKS.glob("evergraph[0-9]*/statistics/rx_bytes")
    return sum(int(counter.read_text()) for counter in counters)


def answer(kind: str, kinds: Kinds, engine: RayEngine) -> dict[str, object]:
    """Do some work and say how it went."""
    name = kind.removeprefix("local:")
    work: Callable[[Engine], Iterable[Tensor]] = getattr(kinds, name)
    before, start = sent(), time.perf_counter()
    found = list(work(LocalEngine() if name != kind else engine))
    taken, bytes_sent = time.perf_counter() - start, sent() - before
    return {
        "kind": kind,
        "seconds": taken,
        "digest": digest(found),
        "bytes": bytes_sent,
        "workers": engine.workers,
    }


def main() -> None:
    """Join, and work until stdin ends."""
    torch.set_num_threads(1)
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
    kinds, engine = Kinds(scale), RayEngine(sys.argv[1])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(line.strip(), kinds, engine)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
