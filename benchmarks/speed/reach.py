"""Exact ego-subnetwork sizes: ours against the naive ways.

python benchmarks/speed/reach.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.graphs import CASES, present
from benchmarks.measure import (
    Options,
    Table,
    extra_peak,
    in_own_process,
    interleaved,
    megabytes,
    run,
    times,
)

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, reach_sizes
from evergraph.streams import GraphStream

HOPS = 2
FULL = ("arxiv structure, directed", "arxiv structure", "wordnet", "synthetic-300000")
QUICK = ("synthetic-5000", "computers")
Mask = npt.NDArray[np.bool_]


def every_node(graph: Graph) -> Tensor:
    """Return the numbers of all nodes."""
    return torch.arange(graph.num_nodes)


def parts(name: str, per_task: bool) -> list[Graph]:
    """Return the whole graph, or the graphs of its tasks of two classes."""
    graph = CASES[name].load()
    if not per_task:
        return [graph]
    stream = GraphStream(graph, classes_per_task=2, min_class_size=3)
    return [stream.local_graph(index) for index in range(len(stream))]


def ours(graphs: Sequence[Graph]) -> list[Tensor]:
    """Return the reach of every node of every graph."""
    return [reach_sizes(graph, every_node(graph), hops=HOPS) for graph in graphs]


class Walker:
    """Breadth-first search in plain Python, node by node; lists are made beforehand, for free."""

    def __init__(self, graph: Graph, sample: int) -> None:
        indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
        self._neighbours = [indices[a:b] for a, b in pairwise(indptr)]
        order = torch.randperm(graph.num_nodes, generator=seeded(0, "sample"))
        self.nodes = order[:sample].tolist()
        self.scale = _walks(graph, every_node(graph)) / _walks(graph, order[:sample])

    def sizes(self) -> list[int]:
        """Return the reach of the sampled nodes."""
        return [self._size(node) for node in self.nodes]

    def _size(self, start: int) -> int:
        met, layer = {start}, [start]
        for _ in range(HOPS):
            fresh = {w for v in layer for w in self._neighbours[v]} - met
            met |= fresh
            layer = list(fresh)
        return len(met)


def _walks(graph: Graph, nodes: Tensor) -> float:
    """Return how many entries a search from each of ``nodes`` reads, in all."""
    counts = torch.zeros(graph.num_nodes, dtype=torch.float64)
    counts.index_add_(0, graph.edge_rows(), graph.degrees.double()[graph.indices])
    return float((counts + graph.degrees + 1)[nodes].sum())


@dataclass(frozen=True)
class Row:
    """Figures of one graph, whole or task by task."""

    name: str
    per_task: bool
    graphs: int
    largest: int
    mean_size: float
    seconds: float
    naive_seconds: float


def measure(name: str, *, per_task: bool, sample: int, rounds: int) -> Row:
    """Check ours against the search on a sample, then let the two take turns."""
    graphs = parts(name, per_task)
    walkers = [Walker(graph, -(-sample // len(graphs))) for graph in graphs]
    sizes = ours(graphs)
    check(sizes, walkers)
    contenders = {"ours": lambda: ours(graphs)} | {
        f"walker {i}": walker.sizes for i, walker in enumerate(walkers)
    }
    seconds = interleaved(contenders, rounds=rounds, limit=20.0)
    return Row(
        name,
        per_task,
        len(graphs),
        max(graph.num_nodes for graph in graphs),
        float(torch.cat(sizes).double().mean()),
        seconds["ours"],
        sum(seconds[f"walker {i}"] * walker.scale for i, walker in enumerate(walkers)),
    )


def check(sizes: Sequence[Tensor], walkers: Sequence[Walker]) -> None:
    """Raise unless ours are the sizes that the searches find."""
    for mine, walker in zip(sizes, walkers, strict=True):
        if mine[walker.nodes].tolist() != walker.sizes():
            raise ValueError("reach_sizes and breadth-first search disagree")


def peak(name: str, per_task: bool) -> int:
    """Return the extra memory of ours; to be called in a process of its own."""
    ours([CASES["synthetic-500"].load()])
    graphs = parts(name, per_task)
    return extra_peak(lambda: ours(graphs))


def size_table(rows: Sequence[tuple[Row, int]], notes: Sequence[str] = ()) -> Table:
    """Return time and memory; ``rows`` come with the peak of ours in bytes."""
    cells = [
        [
            f"{row.name}, {f'{row.graphs} tasks' if row.per_task else 'whole'}",
            f"{row.largest:,}",
            f"{row.mean_size:,.1f}",
            f"{row.seconds:.3f}",
            f"{row.naive_seconds:,.1f}",
            times(row.naive_seconds / row.seconds),
            megabytes(used),
            megabytes(row.largest**2),
            times(row.largest**2 / max(used, 1)),
        ]
        for row, used in rows
    ]
    return Table(
        f"Exact {HOPS}-hop reach of every node",
        (
            "graph",
            "nodes (largest)",
            "mean reach",
            "ours s",
            "Python search s, extrapolated",
            "search / ours",
            "ours peak MB",
            "dense N x N, MB on paper",
            "dense / ours",
        ),
        cells,
        (
            "Python search: breadth-first from a random sample of nodes, sizes equal to ours; its "
            "time is scaled by the adjacency entries that all nodes' searches would read over those "
            "of the sample's.",
            "dense: N² bytes of booleans for the largest graph of the row, never allocated.",
            "peak: resident memory beyond the graph's, in a process of its own.",
            *notes,
        ),
    )


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    cases, reasons = present(QUICK if options.quick else FULL)
    sample, rounds = (100, 2) if options.quick else (400, 3)
    rows = []
    for case in cases:
        for per_task in (True, False):
            row = measure(case.name, per_task=per_task, sample=sample, rounds=rounds)
            rows.append((row, in_own_process(peak, case.name, per_task)))
    return [size_table(rows, reasons)]


if __name__ == "__main__":
    run("reach", "Ego-subnetworks", tables)
