"""The most memory that ``auto`` takes while it learns a whole stream.

python benchmarks/auto_memory.py [--quick] [--out benchmarks/results] [--threads N]

On a CPU: a graph as wide and sparse as bags of words come, such as Flickr's 12,047 words of 7,575
people. On a GPU, where there is one: what is allocated, and what torch reserves for it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from benchmarks.graphs import random_words, synthetic
from benchmarks.measure import Options, Table, in_own_process, peak_of, run

from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph

EDGES = ("within", "all")


def wide(nodes: int, width: int, degree: int) -> Graph:
    """Return a graph with 24 words per node."""
    graph = synthetic(nodes, mean_degree=degree)
    return replace(graph, features=random_words(nodes, width, 24))


def learn(graph: Graph, edges: str, device: str) -> None:
    """Learn and test all tasks of a graph."""
    config = resolved(
        RunConfig.of({"method": "auto", "device": device, "stream": {"edges": edges}})
    )
    stream = build_stream(config, graph, seed=0)
    for _ in learn_stream(build_learner(config, seed=0), stream):
        pass


def on_cpu(nodes: int, width: int, degree: int, edges: str) -> int:
    """Return the highest resident size of a process that learns, its graph and torch included."""
    return peak_of(lambda: learn(wide(nodes, width, degree), edges, "cpu"))[1]


def on_gpu(nodes: int, edges: str) -> tuple[int, int]:
    """Return the most bytes allocated, and reserved."""
    learn(synthetic(nodes, features=128), edges, "cuda")
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def tables(options: Options) -> list[Table]:
    """Measure both."""
    nodes, width, degree = (300, 500, 10) if options.quick else (7_575, 12_047, 63)
    rows: list[tuple[str, ...]] = [
        (edges, f"{in_own_process(on_cpu, nodes, width, degree, edges) / 1e9:.2f}")
        for edges in EDGES
    ]
    title = f"{nodes:,} nodes of degree {degree} with {width:,} sparse features, CPU: GB at most"
    found = [Table(title, ("edges", "resident"), rows, ("Torch and the graph are included.",))]
    if torch.cuda.is_available():
        many = 1_000 if options.quick else 62_000
        rows = []
        for edges in EDGES:
            peak, held = in_own_process(on_gpu, many, edges)
            rows.append((edges, f"{peak / 1e9:.2f}", f"{held / 1e9:.2f}", f"{held / peak:.2f}x"))
        columns = ("edges", "allocated", "reserved", "ratio")
        found.append(Table(f"{many:,} nodes with 128 features, GPU: GB at most", columns, rows))
    return found


if __name__ == "__main__":
    run("auto_memory", "Memory of the default method", tables)
