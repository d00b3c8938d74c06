"""Run an experiment: load, learn every seed's stream, keep results as they come."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from evergraph.core.device import peak_rss_bytes
from evergraph.experiments.build import build_learner, build_stream, check, load_graph
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import TaskReport, learn_stream
from evergraph.experiments.result import PHASES, RunResult, SeedResult
from evergraph.experiments.store import ResultStore, SeedStore
from evergraph.graphs import Graph, homophily
from evergraph.streams import GraphStream
from evergraph.training import Learner


@dataclass(frozen=True)
class Observer:
    """What to call while a run goes on; each does nothing unless given."""

    on_loaded: Callable[[Graph, GraphStream], None] = lambda graph, stream: None
    on_epoch: Callable[[int, int], None] = lambda task, epoch: None
    on_task: Callable[[int, TaskReport], None] = lambda seed, report: None


def run(
    config: RunConfig | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
) -> RunResult:
    """Run an experiment and return its result.

    Args:
        config: what to run; the defaults if not given.
        out: the results folder; nothing is written without one.
        resume: whether to go on with what ``out`` holds; the result is bit for bit the one an
            uninterrupted run gives.
        observer: called as the run goes on.
    """
    config = RunConfig() if config is None else config
    observer = Observer() if observer is None else observer
    start = time.perf_counter()
    check(config)
    graph = load_graph(config)
    first = build_stream(config, graph, config.seeds[0])
    store = None if out is None else ResultStore(out)
    if store is not None:
        store.open(config, resume=resume)
    observer.on_loaded(graph, first)
    seeds = [
        run_seed(
            build_learner(config, seed, on_epoch=observer.on_epoch),
            first if seed == config.seeds[0] else build_stream(config, graph, seed),
            seed,
            store=None if store is None else store.seed(seed),
            observer=observer,
        )
        for seed in config.seeds
    ]
    result = RunResult(
        config=config,
        seeds=seeds,
        total_seconds=time.perf_counter() - start,
        peak_rss_bytes=peak_rss_bytes(),
        dataset=describe(graph, first),
        versions=versions(),
    )
    if store is not None:
        store.keep_result(result)
    return result


def run_seed(
    learner: Learner,
    stream: GraphStream,
    seed: int,
    *,
    store: SeedStore | None = None,
    observer: Observer | None = None,
) -> SeedResult:
    """Learn one repeat, from wherever its store says it stopped."""
    observer = Observer() if observer is None else observer
    reports, finished = ([], None) if store is None else store.progress()
    for report in reports:
        observer.on_task(seed, report)
    if finished is not None:
        return finished
    if reports and store is not None:
        last = reports[-1].index
        learner.restore(store.state_after(last), stream.label_space(last))
    for report in learn_stream(learner, stream, first=len(reports)):
        reports.append(report)
        if store is not None:
            store.keep_task(reports, learner.state())
        observer.on_task(seed, report)
    result = _summarise(learner, seed, reports)
    if store is not None:
        store.keep_result(reports, result)
    return result


def _summarise(learner: Learner, seed: int, reports: list[TaskReport]) -> SeedResult:
    return SeedResult(
        seed=seed,
        rows=[report.rows for report in reports],
        seconds={phase: sum(r.seconds[phase] for r in reports) for phase in PHASES},
        coverage_ratio=learner.coverage_ratio,
        floats=learner.usage.floats,
        bytes=learner.usage.bytes,
    )


def describe(graph: Graph, stream: GraphStream) -> dict[str, Any]:
    """Return the facts of a graph and its stream as plain values."""
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "homophily": homophily(graph),
        "tasks": len(stream),
        "task_classes": [list(classes) for classes in stream.tasks],
    }


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    names = ("evergraph", "torch", "torch-geometric", "numpy", "scipy")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}
