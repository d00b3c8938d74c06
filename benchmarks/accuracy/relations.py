"""What relations and types of nodes add to the default method on WordNet, and what they cost.

python benchmarks/accuracy/relations.py [--quick] [--out benchmarks/results] [--threads N]

Cells that were measured are kept in build/every_graph.jsonl and not measured again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from benchmarks.accuracy.every_graph import SEEDS, Job, cells
from benchmarks.measure import Options, Table, run, times

from evergraph.closed_form.relations import WIDTH, RelationHops
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Relations
from evergraph.topology import MixHop, TopologyEncoder

COLUMNS = ("global", "local", "local with labels")
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
    accuracy = _table(GRAPHS[3:] if options.quick else GRAPHS, seeds, values)
    return [_costs(2_000 if options.quick else 40_000), accuracy]


def _costs(edges: int) -> Table:
    """Measure two hops along relations beside two plain hops of the same width."""
    rows = []
    for count in (edges, 2 * edges, 4 * edges):
        for relations in (1, 16, 256):
            graph = _related(edges, count, relations)
            plain = MixHop(hops=2, kept_hops=(0, 1, 2))
            spent = [_seconds(topology, graph) for topology in (plain, RelationHops())]
            each = 1e9 * spent[1] / len(graph.relations or ())
            rows.append(
                (f"{count:,}", str(relations), f"{each:.0f} ns", times(spent[1] / spent[0]))
            )
    return Table(
        "Two hops along relations, 256 wide",
        ("edges", "relations", "CPU time an entry", "beside two plain hops"),
        rows,
        (f"{edges // 4:,} nodes, edges at random; an edge is two entries.",),
    )


def _related(nodes: int, edges: int, relations: int) -> Graph:
    drawn = seeded(0, "edges", edges)
    ends = torch.randint(nodes // 4, (2, edges), generator=drawn)
    features = torch.randn(nodes // 4, WIDTH, generator=drawn)
    graph = Graph.from_edges(
        ends, features=features, labels=torch.zeros(nodes // 4).long(), undirected=True
    )
    kinds = torch.randint(relations, (edges,), generator=drawn)
    names = [str(number) for number in range(relations)]
    return graph.with_relations(Relations.of(ends, kinds, names, nodes=nodes // 4))


def _seconds(topology: TopologyEncoder, graph: Graph) -> float:
    """Return the least CPU seconds of three."""
    topology.encode(graph)
    spent = []
    for _ in range(3):
        start = time.process_time()
        topology.encode(graph)
        spent.append(time.process_time() - start)
    return min(spent)


def accuracy_jobs(
    graphs: Sequence[str], seeds: Sequence[int], values: dict[str, Any]
) -> dict[tuple[str, str], list[Job]]:
    """Return what the table of accuracies needs, by graph and column."""
    return {
        (graph, column): [Job("once", graph, column, seed, values) for seed in seeds]
        for graph in graphs
        for column in COLUMNS
    }


def _table(graphs: Sequence[str], seeds: Sequence[int], values: dict[str, Any]) -> Table:
    jobs = accuracy_jobs(graphs, seeds, values)
    known, rows = cells(job for each in jobs.values() for job in each), []
    for graph in graphs:
        row = [graph]
        for column in COLUMNS:
            found = [known[job.key].accuracy for job in jobs[graph, column]]
            row.append(f"{mean(found):.1f} ({max(found) - min(found):.1f})")
        rows.append(row)
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
