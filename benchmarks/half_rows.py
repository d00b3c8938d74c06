"""What rows in half numbers cost in accuracy, and what they change of embeddings.

python benchmarks/half_rows.py [--quick] [--out benchmarks/results]

Accuracies need no quiet machine: the same splits and seeds are learned with each kind of rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graphs import DATA, from_file
from benchmarks.measure import Options, Table, run

import evergraph
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph, homophily
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.topology import SGC

ROWS: tuple[RowType, ...] = ("float32", "float16", "bfloat16")
FILES = ("amazon_computers", "actor", "coauthor_cs")
HOPS = 2
SEEDS: tuple[int, ...] = (0, 1)
# How each method is told what rows to take.
METHODS: dict[str, Callable[[str], dict[str, Any]]] = {
    "auto": lambda rows: {"backbone": {"name": "view-features", "dtype": rows}},
    "tem": lambda rows: {"method": "tem", "topology": {"name": "sgc", "dtype": rows}},
}


def graphs(*, quick: bool) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs that are there, their features dense: sparse ones are not rounded."""
    if quick:
        yield "synthetic", evergraph.load("synthetic", nodes=300, classes=4, features=8)
        return
    for name in FILES:
        path = DATA / f"{name}.npz"
        if path.exists():
            graph = from_file(path)
            yield name, graph.with_features(densify(graph.features))
        else:
            print(f"{name}: skipped, {path} is absent", file=sys.stderr)


def accuracy(graph: Graph, values: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the average accuracy in per cent, tested in both ways once all is learned."""
    config = resolved(RunConfig.of({"device": "cpu", **values}))
    *_, last = learn_stream(build_learner(config, seed), build_stream(config, graph, seed))
    return {
        way: 100 * sum(rows["balanced"]) / len(rows["balanced"]) for way, rows in last.rows.items()
    }


def accuracy_rows(
    name: str, graph: Graph, given: Mapping[str, Any], seeds: tuple[int, ...]
) -> Iterator[list[str]]:
    """Learn one graph by every method with every kind of rows."""
    for method, told in METHODS.items():
        found: dict[str, list[dict[str, float]]] = {}
        for rows in ROWS:
            values = merged(told(rows), given)
            found[rows] = [accuracy(graph, values, seed) for seed in seeds]
            print(name, method, rows, found[rows], file=sys.stderr)
        for way in ("local", "global"):
            whole = [one[way] for one in found["float32"]]
            cells = [f"{sum(whole) / len(whole):.2f}"]
            for rows in ROWS[1:]:
                apart = [one[way] - base for one, base in zip(found[rows], whole, strict=True)]
                cells += [f"{sum(apart) / len(apart):+.3f}", f"{max(map(abs, apart)):.3f}"]
            yield [name, method, way, *cells]


def embedding_row(name: str, graph: Graph) -> list[str]:
    """Compare embeddings of two hops."""
    whole = SGC(hops=HOPS).encode(graph)
    lengths = whole.norm(dim=1)
    cells = []
    for rows in ROWS[1:]:
        apart = (SGC(hops=HOPS, dtype=rows).encode(graph) - whole).norm(dim=1)
        shares = (apart / lengths)[lengths > 0]
        cells += [f"{float(shares.mean()):.1e}", f"{float(shares.max()):.1e}"]
    shape = f"{graph.num_nodes:,}", f"{graph.num_edges:,}", str(graph.num_features)
    return [name, *shape, f"{homophily(graph):.2f}", *cells]


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    seeds, given = SEEDS, dict[str, Any]()
    if options.quick:
        seeds = SEEDS[:1]
        given = {"training": {"epochs": 2}}
    accuracies: list[list[str]] = []
    embeddings: list[list[str]] = []
    for name, graph in graphs(quick=options.quick):
        embeddings.append(embedding_row(name, graph))
        accuracies += accuracy_rows(name, graph, given, seeds)
    return [
        Table(
            f"Average accuracy, class-IL, {len(seeds)} seeds",
            ("graph", "method", "testing", "float32", "float16", "most", "bfloat16", "most"),
            accuracies,
            (
                "float32: in per cent, balanced over classes, once all tasks are learned.",
                "float16, bfloat16: points more or less, on the mean over seeds; most: the largest "
                "difference of a single seed, up or down.",
            ),
        ),
        Table(
            f"Embeddings of {HOPS} hops of sgc",
            ("graph", "nodes", "entries", "features", "homophily", "float16, mean", "largest",
             "bfloat16, mean", "largest"),
            embeddings,
            ("mean, largest: over nodes, of the difference's length as a share of the "
             "embedding's.",),
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    run("half_rows", "Rows in half numbers", tables)
