"""Ego-subnetwork sizes of large graphs: how far the estimates are off, and what they cost.

python benchmarks/reach_at_scale.py [--quick] [--out benchmarks/results] [--threads N]
python benchmarks/reach_at_scale.py --device cuda   # estimates on a GPU; prints, writes nothing
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import benchmarks.twin_graphs  # noqa: F401 (registers products-twin and its siblings)
from benchmarks.graphs import CASES, present
from benchmarks.measure import (
    Options,
    Table,
    extra_peak,
    in_own_process,
    interleaved,
    megabytes,
    report,
    run,
    seconds_of,
    share,
    times,
)

from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph, estimate_reach_sizes
from evergraph.graphs.reach.hyperloglog import REGISTERS
from evergraph.graphs.reach.reach import (
    choose,
    predicted_seconds,
    reach_blocks,
    search_costs,
    searched_sizes,
)
from evergraph.memory import Candidates, EmbeddingMemory
from evergraph.memory.samplers import CoverageSampler
from evergraph.streams import GraphStream

HOPS = 2
TITLE = "Reach at scale"
FULL = ("arxiv structure", "arxiv structure, directed")
QUICK = ("synthetic-5000",)
WIDTHS = (128, 256, 512, 1024)
BUDGETS = (0.01, 0.001)
TWINS = ("products-twin", "reddit-twin")
# Of a twin's nodes one in so many is also measured exactly.
SAMPLED = 100


def every_node(graph: Graph) -> Tensor:
    """Return the numbers of all nodes."""
    return torch.arange(graph.num_nodes)


def multiplied(graph: Graph, nodes: Tensor) -> Tensor:
    """Return exact sizes by sparse products."""
    blocks = reach_blocks(graph, nodes, hops=HOPS)
    return torch.cat([torch.from_numpy(np.diff(members.indptr)) for _, members in blocks]).long()


def searched(graph: Graph, nodes: Tensor) -> Tensor:
    """Return exact sizes by search, whatever the graph's size."""
    return searched_sizes(graph, nodes, hops=HOPS, costs=search_costs(graph, nodes, hops=HOPS))


def errors(estimates: Tensor, sizes: Tensor) -> Tensor:
    """Return relative errors, signed.  float64 [nodes]"""
    return estimates / sizes - 1


def error_table(name: str, *, rounds: int) -> Table:
    """Compare estimates of several widths with exact sizes, and what each takes."""
    graph = CASES[name].load()
    nodes = every_node(graph)
    sizes = searched(graph, nodes)
    if not sizes.equal(multiplied(graph, nodes)):
        raise ValueError("search and sparse products disagree")
    estimate = partial(estimate_reach_sizes, graph, nodes, hops=HOPS)
    contenders = {f"{width}": partial(estimate, registers=width) for width in WIDTHS}
    off = {key: errors(work(), sizes) for key, work in contenders.items()}
    exact = {
        "search": partial(searched, graph, nodes),
        "products": partial(multiplied, graph, nodes),
    }
    seconds = interleaved(exact | contenders, rounds=rounds)
    cells = [_exact_cells(key, seconds) for key in exact] + [
        [f"{key} registers{' (default)' if int(key) == REGISTERS else ''}",
         share(float(off[key].abs().mean()), 1), share(float(off[key].mean()), 1),
         share(float(off[key].abs().quantile(0.95)), 1), f"{seconds[key]:.2f}",
         times(seconds[key] / seconds["search"]), times(seconds[key] / seconds["products"])]
        for key in contenders
    ]  # fmt: skip
    return Table(
        f"{HOPS}-hop sizes of every node, {name}: mean {float(sizes.double().mean()):,.0f}",
        ("", "mean error", "mean signed error", "95 % of errors below", "seconds",
         "of the search's", "of the products'"),
        cells,
        ("search: breadth-first, compiled; products: boolean sparse ones, where numba is not "
         "installed. Both are exact and were checked to agree.",),
    )  # fmt: skip


def _exact_cells(key: str, seconds: dict[str, float]) -> list[str]:
    ratios = [times(seconds[key] / seconds[other]) for other in ("search", "products")]
    return [f"exact, {key}", "0", "0", "0", f"{seconds[key]:.2f}", *ratios]


def coverage_of(stream: GraphStream, reach: str, budget: float, *, seed: int) -> float:
    """Return R_c of a memory over all tasks of a stream, within each task."""
    memory = EmbeddingMemory(budget=budget, sampler=CoverageSampler(reach=reach))
    for index in range(len(stream)):
        task = stream.open(index)
        nothing = torch.empty(len(task.train), 0)
        candidates = Candidates(
            task.graph, task.train, task.train_labels, nothing, HOPS, known_as=task.ids[task.train]
        )
        memory.store(candidates, task.class_sizes, generator=seeded(seed, index))
        memory.measure(task.graph, task.ids, task.own, hops=HOPS)
    return memory.coverage_ratio


def coverage_table(names: Sequence[str], absent: Sequence[str] = (), *, seeds: int) -> Table:
    """Compare what samples cover that were drawn with exact and with estimated sizes."""
    cells = []
    for name in names:
        stream = GraphStream(CASES[name].load(), classes_per_task=2, min_class_size=3)
        for budget in BUDGETS:
            exact, estimated = (
                torch.tensor([coverage_of(stream, way, budget, seed=s) for s in range(seeds)]) * 100
                for way in ("exact", "estimated")
            )
            apart = estimated - exact
            cells.append(
                [f"{name}, {100 * budget:g} %", f"{exact.mean():.2f}", f"{estimated.mean():.2f}",
                 f"{apart.mean():+.2f}", f"{apart.abs().max():.2f}"]
            )  # fmt: skip
    return Table(
        f"Coverage ratio of the nodes that `coverage` draws, in per cent, {seeds} seeds",
        ("graph, budget", "exact sizes", "estimated sizes", "apart", "most apart of any seed"),
        cells,
        ("Tasks of two classes, each within itself; the same seeds draw both.", *absent),
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Figures of one twin, whole or task by task."""

    graphs: int
    nodes: int
    entries: int
    predicted: tuple[float, float]
    seconds: float
    peak: int
    exact: float
    error: float


def parts(name: str, scale: float, per_task: bool) -> list[Graph]:
    """Return a whole twin, or the graphs of its tasks of two classes."""
    graph = load(name, scale=scale)
    if not per_task:
        return [graph]
    stream = GraphStream(graph, classes_per_task=2, min_class_size=3)
    return [stream.local_graph(index) for index in range(len(stream))]


def measure(name: str, scale: float, per_task: bool) -> Row:
    """Estimate a twin's sizes and look at some exactly; to be called in a process of its own."""
    small = CASES["synthetic-300000"].load()  # what is compiled once is not the twin's
    _ = estimates_of([small]), searched(small, every_node(small)[:9])
    graphs, found = parts(name, scale, per_task), list[Tensor]()
    taken = list[float]()
    peak = extra_peak(lambda: taken.append(seconds_of(lambda: found.extend(estimates_of(graphs)))))
    exact, off, predicted = 0.0, list[Tensor](), list[tuple[float, float]]()
    for graph, estimates in zip(graphs, found, strict=True):
        predicted.append(_cost(graph))
        nodes = every_node(graph)[::SAMPLED]
        costs = search_costs(graph, nodes, hops=HOPS)
        sizes = list[Tensor]()
        work = partial(searched_sizes, graph, nodes, hops=HOPS, costs=costs)
        seconds = seconds_of(lambda: sizes.append(work()))  # noqa: B023
        whole = search_costs(graph, every_node(graph), hops=HOPS).sum()
        exact += seconds * float(whole / costs.sum())
        off.append(errors(estimates[nodes], sizes[0]).abs())
    return Row(
        len(graphs),
        sum(graph.num_nodes for graph in graphs),
        sum(graph.num_edges for graph in graphs),
        (sum(exact for exact, _ in predicted), sum(estimated for _, estimated in predicted)),
        taken[0],
        peak,
        exact,
        float(torch.cat(off).mean()),
    )


def estimates_of(graphs: Sequence[Graph]) -> list[Tensor]:
    """Return estimated sizes of every node of every graph."""
    return [estimate_reach_sizes(graph, every_node(graph), hops=HOPS) for graph in graphs]


def _cost(graph: Graph) -> tuple[float, float]:
    costs = search_costs(graph, every_node(graph), hops=HOPS)
    return predicted_seconds(graph, costs, hops=HOPS, registers=REGISTERS)


def _taken(row: Row) -> str:
    nodes, device = torch.arange(row.nodes), torch.device("cpu")
    return choose("auto", *row.predicted, nodes=nodes, hops=HOPS, device=device)


def scale_table(scale: float) -> Table:
    """Return what whole twins and their tasks take."""
    cells = []
    for name in TWINS:
        for per_task in (False, True):
            row = in_own_process(measure, name, scale, per_task)
            cells.append(
                [f"{name}, {f'{row.graphs} tasks' if per_task else 'whole'}",
                 f"{row.nodes:,}", f"{row.entries:,}", f"{row.seconds:.1f}", megabytes(row.peak),
                 f"{row.exact:.0f}", times(row.exact / row.seconds), share(row.error, 1),
                 "{:.0f} / {:.0f}".format(*row.predicted),
                 "each by itself" if per_task else _taken(row)]
            )  # fmt: skip
    return Table(
        f"Estimated {HOPS}-hop sizes of every node of the twins at scale {scale:g}",
        ("twin", "nodes", "entries", "estimated s", "peak MB", "exact s, extrapolated",
         "exact / estimated", "mean error", "predicted s, exact / estimated", "auto takes"),
        cells,
        (f"exact: search from one node in {SAMPLED}, scaled by the entries that all would read.",
         "peak: resident memory beyond the graph's, pages of its files that were just read "
         "included, in a process of its own.",),
    )  # fmt: skip


def device_table(device: str, scale: float) -> Table:
    """Compare a GPU's estimates with the CPU's, bit for bit, and give its seconds."""
    cells = []
    for name in TWINS:
        graph = load(name, scale=scale)
        here = estimate_reach_sizes(graph, every_node(graph), hops=HOPS)
        there = graph.to(device)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        work = partial(estimate_reach_sizes, there, every_node(graph).to(device), hops=HOPS)
        if not here.equal(work()):
            raise ValueError("CPU and GPU disagree")
        peak = torch.cuda.max_memory_allocated() - held
        seconds = interleaved(
            {
                "gpu": work,
                "cpu": partial(estimate_reach_sizes, graph, every_node(graph), hops=HOPS),
            },
            rounds=2,
        )
        cells.append([name, f"{graph.num_nodes:,}", f"{graph.num_edges:,}", f"{seconds['gpu']:.2f}",
                      f"{seconds['cpu']:.2f}", megabytes(peak)])  # fmt: skip
    return Table(
        f"Estimated {HOPS}-hop sizes of every node on {torch.cuda.get_device_name()}",
        ("twin", "nodes", "entries", "GPU s", "CPU s", "GPU peak MB"),
        cells,
        ("GPU and CPU were checked to give the same bits. peak: beyond the graph's.",),
    )


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    cases, absent = present(QUICK if options.quick else FULL)
    names = [case.name for case in cases]
    found = [error_table(name, rounds=2) for name in names]
    found.append(coverage_table(names, absent, seeds=2 if options.quick else 5))
    found.append(scale_table(0.01 if options.quick else 1.0))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device")
    given, rest = parser.parse_known_args()
    if given.device is None:
        run("reach_at_scale", TITLE, tables)
    else:
        table = device_table(given.device, 0.01 if "--quick" in rest else 1.0)
        print(report("reach_at_scale", TITLE, [table], arguments=sys.argv[1:]))
