"""The whole pipeline on one GPU, at the size of Products and Reddit: absolute times.

python benchmarks/speed/gpu.py [--quick] [--out benchmarks/results]

Needs a CUDA device; the graphs are generated on first use (a minute each) and kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import benchmarks.speed.twin_graphs  # noqa: F401 (registers products-twin and its siblings)
from benchmarks.measure import Options, Table, megabytes, ms, run

from evergraph.core.resources import Resources
from evergraph.datasets import load
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.presets import read_preset
from evergraph.experiments.protocol import learn_stream
from evergraph.experiments.result import PHASES
from evergraph.graphs import Graph, normalised, propagate
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.topology import SGC, EmbeddingCache

TWINS = ("products-twin", "reddit-twin")
STREAMS: dict[str, dict[str, Any]] = {
    "tem, the paper's recipe (200 epochs, full batch)": {"preset": "paper"},
    "auto, the default method": {},
    "analytic, width 4,096": {"method": "analytic"},
    "auto, rows float16": {"backbone": {"name": "view-features", "dtype": "float16"}},
    "analytic, rows float16": {
        "method": "analytic",
        "topology": {"name": "sgc", "dtype": "float16"},
    },
}
HALVES: tuple[RowType, ...] = ("float16", "bfloat16")
WITHIN: tuple[RowType, ...] = ("float32", "float16")


def main(options: Options) -> list[Table]:
    """Measure everything."""
    scale = 0.01 if options.quick else 1.0
    tables = [embedding(scale), streams(scale), within(scale)]
    return tables


def timed(work: Callable[[], object], *, rounds: int = 10) -> float:
    """Return the best seconds of some rounds, the device idle before and after each."""
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def embedding(scale: float) -> Table:
    """Return how long a 2-hop embedding takes with everything on the device."""
    rows = []
    for name in TWINS:
        graph = twin(name, scale).to("cuda")
        shape = f"{graph.num_nodes:,}", f"{graph.num_edges:,}", f"{graph.num_features}"
        rows.append((name, *shape, ms(by_cusparse(graph)), *by_triton(graph)))
        del graph
        torch.cuda.empty_cache()
    halves = ("float16 ms", "apart", "bfloat16 ms", "apart")
    return Table(
        "2-hop SGC embedding, data on the device",
        ("graph", "nodes", "entries", "features", "cuSPARSE ms", "encode ms", "peak MB", *halves),
        rows,
        (
            "cuSPARSE: two products with the normalised adjacency already written out.",
            "encode: normalisation included, nothing kept from before.",
            "float16, bfloat16: encode with rows so, features and sums in float32; apart: the mean "
            "over nodes of the difference's length as a share of the embedding's.",
        ),
    )


def by_cusparse(graph: Graph) -> float:
    """Return the seconds of two products with Â written out."""
    adjacency = normalised(graph)
    return timed(lambda: propagate(adjacency, propagate(adjacency, graph.features)))


def by_triton(graph: Graph) -> list[str]:
    """Return milliseconds and memory of an embedding, and what halves of numbers change."""
    topology = SGC(hops=2)
    whole = topology.encode(graph)
    torch.cuda.reset_peak_memory_stats()
    cells = [ms(timed(lambda: topology.encode(graph)))]
    cells.append(megabytes(torch.cuda.max_memory_allocated()))
    for rows in HALVES:
        half = SGC(hops=2, dtype=rows)
        apart = (half.encode(graph) - whole).norm(dim=1) / whole.norm(dim=1)
        cells.append(ms(timed(lambda t=half: t.encode(graph))))  # type: ignore[misc]
        cells.append(f"{float(apart.mean()):.1e}")
    return cells


def streams(scale: float) -> Table:
    """Return how long whole streams of Products' size take."""
    graph = twin("products-twin", scale)
    rows = []
    for name, given in STREAMS.items():
        first, *_ = stream_row(graph, given)
        torch.cuda.empty_cache()
        rows.append((name, first, *stream_row(graph, given)))
        torch.cuda.empty_cache()
    return Table(
        "A stream of Products' size, class-IL, both ways of testing after every task",
        ("method", "first s", "again s", "cutting", *PHASES, "local AA", "global AA", "peak MB"),
        rows,
        (
            "seconds: all of it once the graph is in host memory: moving it to the device, cutting "
            "23 tasks, embedding, training, sampling, testing after each of them.",
            "first: the first time in a process, in which libraries are loaded and started; again "
            "and what follows it: the second time.",
        ),
    )


def stream_row(graph: Graph, given: dict[str, Any]) -> tuple[str, ...]:
    """Learn one stream and return its figures."""
    values: dict[str, Any] = {"device": "cuda"}
    if "preset" in given:
        values = merged(read_preset(given["preset"]), values)
    else:
        values |= given
    config = resolved(RunConfig.of(values))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    stream = build_stream(config, graph, 0)
    learner = build_learner(config, 0)
    reports = []
    for report in learn_stream(learner, stream):
        reports.append(report)
        print(report.index, report.seconds, file=sys.stderr)
    torch.cuda.synchronize()
    total = time.perf_counter() - start
    spent = {phase: sum(r.seconds[phase] for r in reports) for phase in PHASES}
    last = reports[-1].rows
    accuracy = [
        f"{100 * sum(last[way]['balanced']) / len(last[way]['balanced']):.1f}"
        for way in ("local", "global")
    ]
    phases = [f"{spent[phase]:.2f}" for phase in PHASES]
    rest = f"{total - sum(spent.values()):.2f}"
    peak = megabytes(torch.cuda.max_memory_allocated())
    return f"{total:.2f}", rest, *phases, *accuracy, peak


class Small(Resources):
    """A device with less room than the features take."""

    share = 1.0

    def left_on(self, device: torch.device) -> int:
        """How many bytes may still be taken on a device."""
        whole = super().left_on(device)
        return whole if device.type == "cpu" else min(whole, int(self.share))


def within(scale: float) -> Table:
    """Return what it costs to stream a graph through a device that it does not fit on."""
    graph = twin("products-twin", scale)
    on_device = EmbeddingCache(SGC(), device="cuda").encode(graph)
    whole = timed(lambda: EmbeddingCache(SGC(), device="cuda").encode(graph), rounds=3)
    rows = [("all of it", "float32", ms(whole), "0")]
    for room, held in product((2.5e9, 1.0e9), WITHIN):
        resources = Small()
        object.__setattr__(resources, "share", room * scale + 2e8)
        cache = EmbeddingCache(SGC(dtype=held), device="cuda", resources=resources)
        found = cache.encode(graph)
        difference = float((found.cpu() - on_device.cpu()).abs().max())
        taken = timed(lambda c=cache: c.encode(graph), rounds=2)  # type: ignore[misc]
        rows.append((f"{room / 1e9:.1f} GB", held, ms(taken), f"{difference:.1e}"))
    return Table(
        "Products' twin from host memory through a device with little room",
        ("room on the device", "rows", "ms", "largest difference"),
        rows,
        (
            "Copies to and from the device included.",
            "In 1.0 GB the adjacency does not fit: its rows go there a range at a time.",
        ),
    )


def twin(name: str, scale: float) -> Graph:
    """Return a generated graph in host memory."""
    return load(name, scale=scale).in_memory()


if __name__ == "__main__":
    run("gpu", "One GPU", main)
