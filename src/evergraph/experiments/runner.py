"""Run an experiment: load data, learn every seed's stream, and store results on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import ConfigurationError, DataError, EvergraphError
from evergraph.core.resources import Resources, SharedCache, denormals_flushed, peak_rss_bytes
from evergraph.core.safe_files import FileLock
from evergraph.datasets.adapters import as_graph
from evergraph.experiments import build
from evergraph.experiments.config import Component, RunConfig, StreamConfig
from evergraph.experiments.progress import RunProgress, watched
from evergraph.experiments.protocol import TaskReport, learn_stream, steps_apart
from evergraph.experiments.result import RunResult, SeedResult, describe, machine, versions
from evergraph.experiments.settings import IN_MEMORY, config_of
from evergraph.experiments.store import ResultStore
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.streams import GraphStream
from evergraph.tables.names import OF_EDGES, OF_NODES
from evergraph.training import Learner

if TYPE_CHECKING:
    from torch_geometric.data import Data

Learned = tuple[SeedResult, Learner | None]  # the learner is None if the seed was finished before
Learning = Generator[TaskReport, None, Learned]


@dataclass(frozen=True)
class Observer:
    """Callbacks of a run; each does nothing by default."""

    on_epoch: Callable[[int, int], None] = lambda task, epoch: None
    on_task: Callable[[int, TaskReport], None] = lambda seed, report: None


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """Experiment with its data loaded, its components checked and its folder claimed."""

    config: RunConfig  # with every parameter filled in
    graph: Graph  # the whole graph
    stream: GraphStream  # the first seed's stream
    store: ResultStore | None  # the results folder, None if nothing is written
    started: float  # when it was opened, on the performance counter
    resources: Resources = field(default_factory=Resources)  # memory and engine that it may use
    locks: tuple[FileLock, ...] = ()  # keep other processes from learning the same seeds
    # Of the data, versions and machine, for the result; collected early so that errors are raised
    # before training.
    facts: dict[str, Any] = field(default_factory=dict)
    # The learner of the first seed to be learned here, built early to check its configuration.
    ready: dict[int, Learner] = field(default_factory=dict)

    def close(self) -> None:
        """Release the folder."""
        for lock in self.locks:
            lock.close()


def run(  # noqa: PLR0913
    source: RunConfig | Graph | Data | str | Path | None = None,
    /,
    method: str | Mapping[str, Any] | None = None,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    resources: Resources | None = None,
    observer: Observer | None = None,
    progress: bool | None = None,
    memory: str | int | Mapping[str, Any] | None = None,
    keep_learner: bool = True,
    **settings: Any,
) -> RunResult:
    """Run an experiment and return its result.

    Args:
        source: what to learn: a graph (also of PyG, NetworkX or SciPy, or a pair of tables); the
            name or path of a dataset; or a whole configuration, which ``settings`` may change. The
            default configuration if not given.
        method: a method's name; by default the configuration's, which is ``auto`` unless set.
        out: the results folder; if not given, nothing is written.
        resume: whether to continue from the results in ``out``; the result is bit for bit that of
            an uninterrupted run.
        resources: memory limit and engine; results do not depend on them.
        observer: callbacks during the run.
        progress: whether to show a progress bar; by default on a terminal or in a notebook, if
            there is no observer.
        memory: bytes that method ``auto`` may keep, such as ``"50MB"``; they set its views and
            width. Methods that keep nodes take a ``budget`` of nodes per class instead.
        keep_learner: whether the result holds the last seed's trained learner, as
            ``result.learner``. Resuming a run that had already finished gives none.
        settings: of ``RunConfig`` or one of its sections, such as ``setting="task-il"``,
            ``epochs=10``, ``budget=50``, ``protocol="cglb"`` or ``topology__alpha=0.2``;
            ``seed=5``, ``seeds=(0, 1, 2)`` or ``repeats=3``; a component by name, as a table with
            its ``name``, or as an object: ``sampler=UniformSampler()``. Tables take the names of
            their columns, as ``id="customer_id"``, as in ``load``.

    >>> from evergraph.datasets import load
    >>> graph = load("synthetic", nodes=120, classes=4, features=8, noise=0.2)
    >>> result = run(graph, "finetune", setting="task-il", epochs=3, device="cpu", progress=False)
    >>> result.dataset["nodes"], result.config.dataset.name, len(result.seeds[0].rows)
    (120, 'in memory', 2)
    """
    if isinstance(memory, (str, int)):
        settings["method__memory"] = memory
    elif memory is not None:  # a table or an object that configures the nodes to keep
        settings["memory"] = memory
    graph: Graph | None = None
    if source is not None and not isinstance(source, (str, Path, RunConfig)):
        graph = as_graph(source, **_names_of_columns(settings)).to("cpu")
        graph = build.with_some_features(graph, "graph")
    elif source is not None and not isinstance(source, RunConfig):
        settings |= {f"dataset__{name}": n for name, n in _names_of_columns(settings).items()}
    config = config_of(source, graph, method, settings)

    def load(config: RunConfig) -> Graph:
        if graph is None:
            return build.load_graph(config)
        loaded = graph.with_directions() if config.directions else graph
        return loaded.to_undirected() if config.undirected else loaded

    folder = None if out is None else Path(out)
    opened = open_run(config, out=folder, resume=resume, resources=resources, load=load)
    if progress is None:
        progress = observer is None and watched()
    if not progress:
        return complete(opened, observer=observer, keep_learner=keep_learner)
    bar, [bar_observer] = progress_of([opened])
    observers = [bar_observer] if observer is None else [bar_observer, observer]

    def on_epoch(task: int, epoch: int) -> None:
        for each in observers:
            each.on_epoch(task, epoch)

    def on_task(seed: int, report: TaskReport) -> None:
        for each in observers:
            each.on_task(seed, report)

    with bar:
        return complete(opened, observer=Observer(on_epoch, on_task), keep_learner=keep_learner)


def _names_of_columns(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the names of columns out of the settings of ``run``."""
    return {name: settings.pop(name) for name in (*OF_NODES, *OF_EDGES) if name in settings}


def progress_of(runs: Sequence[OpenedRun]) -> tuple[RunProgress, list[Observer]]:
    """Return a progress bar for runs on the same data, and an observer for each run."""
    first, stream = runs[0].config, runs[0].stream
    epochs = {opened.config.method.name: build.epochs_of(opened.config) for opened in runs}
    dataset = first.dataset.name
    dataset = "a graph in memory" if dataset == IN_MEMORY else dataset
    label = f"{first.method.name} on {dataset}" if len(runs) == 1 else dataset
    tasks, seeds = len(stream), len(first.seeds)
    unit = "task" if tasks == len(stream.tasks) else "batch"
    bar = RunProgress(label=label, epochs=epochs, tasks=tasks, seeds=seeds, unit=unit)
    return bar, [Observer(partial(bar.on_epoch, n), partial(bar.on_task, n)) for n in epochs]


@denormals_flushed()
def open_run(
    config: RunConfig,
    *,
    out: Path | None = None,
    resume: bool = False,
    resources: Resources | None = None,
    load: Callable[[RunConfig], Graph] = build.load_graph,
    seeds: Iterable[int] | None = None,
    cut: Callable[[RunConfig, Graph, Resources], GraphStream] | None = None,
    ready: tuple[RunConfig, Learner] | None = None,
) -> OpenedRun:
    """Load the data and claim the folder; raise errors before anything is written.

    load, cut: sources of the graph and the first seed's stream, if not the configuration.
    seeds: those to learn here; all by default. No other process can learn them until the run is
    closed. ready: the learner of the first of them, if it is already built, for a configuration.
    """
    started = time.perf_counter()
    configured = config
    config = build.resolved(config)
    resources = Resources() if resources is None else resources
    seeds = config.seeds if seeds is None else tuple(seeds)
    checked, learner = ready or (config, build.check(config, seeds[0], resources=resources))
    graph = load(config)
    config = build.fitted_to(graph, config)
    if config != checked:
        learner = build.check(config, seeds[0], resources=resources)
    build.say_protocol(configured, config)
    if graph.num_features == 0:
        raise DataError(f"dataset {config.dataset.name!r} has no features to learn from")
    if cut is None:
        stream = build.build_stream(config, graph, config.seeds[0], resources=resources)
    else:
        stream = cut(config, graph, resources)
    build.say_unseen(config, graph)
    facts = {
        "dataset": describe(graph, stream, config),
        "versions": versions(),
        "machine": machine(config.device),
    }
    store: ResultStore | None = None
    locks: tuple[FileLock, ...] = ()
    if out is not None:
        store = ResultStore(out)
        store.open(config, resume=resume)
        locks = tuple(store.seed(seed).lock() for seed in seeds)
    first = {seeds[0]: learner}
    return OpenedRun(config, graph, stream, store, started, resources, locks, facts, first)


def open_together(
    configs: Sequence[RunConfig],
    *,
    out: Sequence[Path | None],
    resume: bool = False,
    resources: Resources | None = None,
) -> list[OpenedRun]:
    """Open runs of different methods on the same data, sharing the graph and its stream.

    All of them are checked before any folder is claimed.
    """
    resources = replace(Resources() if resources is None else resources, cache=SharedCache())
    first = build.resolved(configs[0])
    ready = []
    for config in map(build.resolved, configs):
        ready.append((config, build.check(config, config.seeds[0], resources=resources)))
        for part in ("dataset", "undirected", "directions", "stream", "seeds", "device"):
            if getattr(config, part) != getattr(first, part):
                raise ConfigurationError(
                    f"{part} must be the same for all runs that are learned together, "
                    f"but {config.method.name} and {first.method.name} differ in it"
                )
    opened: list[OpenedRun] = []
    options: dict[str, Any] = {"resume": resume, "resources": resources}
    for config, folder, learner in zip(configs, out, ready, strict=True):
        opened.append(open_run(config, out=folder, ready=learner, **options))
        options |= {"load": lambda _: opened[0].graph, "cut": lambda *_: opened[0].stream}
    return opened


def complete(
    opened: OpenedRun, *, observer: Observer | None = None, keep_learner: bool = False
) -> RunResult:
    """Learn the remaining seeds of an opened run; keep_learner: see ``run``."""
    return complete_together([opened], observers=[observer], keep_learner=keep_learner)[0]


def complete_together(
    runs: Sequence[OpenedRun], *, observers: Sequence[Observer | None], keep_learner: bool = False
) -> list[RunResult]:
    """Learn the remaining seeds of runs opened together, one task of each run in turn.

    What all runs need for a task, above all the embeddings of everything seen so far, is computed
    once and kept only for that task. keep_learner: see ``run``.
    """
    if len(runs) > 1:
        for opened in runs:
            warm_up(opened)
    # What they share, whoever was opened first, counts for all of them.
    opening = time.perf_counter() - min(opened.started for opened in runs)
    observed = list(zip(runs, observers, strict=True))
    seed_results: list[list[SeedResult]] = [[] for _ in runs]
    try:
        for seed in runs[0].config.seeds:
            learning = [learn_seed_by_task(run, seed, observer=o) for run, o in observed]
            learned = _in_turn(learning)
            for seeds, (seed_result, _) in zip(seed_results, learned, strict=True):
                seeds.append(seed_result)
        results = []
        for opened, seeds, (_, learner) in zip(runs, seed_results, learned, strict=True):
            result = assemble(opened, seeds, opening)
            results.append(replace(result, learner=learner) if keep_learner else result)
        return results
    finally:
        for opened in runs:
            opened.close()


def warm_up(opened: OpenedRun) -> None:
    """Learn a tiny graph: packages and kernels that load on first use must not count for a task."""
    training = opened.config.training.model_copy(update={"epochs": 1})
    tiny = {
        "dataset": Component.model_validate({"name": "synthetic", "nodes": 40, "classes": 4}),
        "stream": StreamConfig(edges=opened.config.stream.edges),
        "training": training,
    }
    config = opened.config.model_copy(update=tiny)
    with suppress(EvergraphError):  # a method that cannot learn this graph starts with its own
        stream = build.build_stream(config, build.load_graph(config), 0)
        for _ in learn_stream(build.build_learner(config, 0), stream):
            pass


def _in_turn(learning: Sequence[Learning]) -> list[Learned]:
    """Advance each run by one task in turn until all are done."""
    results: dict[int, Learned] = {}
    while len(results) < len(learning):
        for number, run_by_task in enumerate(learning):
            if number not in results:
                try:
                    next(run_by_task)
                except StopIteration as end:
                    results[number] = end.value
    return [results[number] for number in range(len(learning))]


def learn_seed(opened: OpenedRun, seed: int) -> SeedResult:
    """Learn the remaining tasks of one repeat of an opened run."""
    return _in_turn([learn_seed_by_task(opened, seed)])[0][0]


def learn_seed_by_task(
    opened: OpenedRun, seed: int, *, observer: Observer | None = None
) -> Learning:
    """Learn one repeat from test to test, continuing from its stored progress."""
    config, resources = opened.config, opened.resources
    observer = Observer() if observer is None else observer
    store = None if opened.store is None else opened.store.seed(seed)
    stored = None if store is None else store.progress()
    reports = [] if stored is None else stored.reports
    for report in reports:
        observer.on_task(seed, report)
    if stored is not None and stored.result is not None:
        return stored.result, None
    learner = opened.ready.pop(seed, None)
    if learner is None:
        learner = build.build_learner(config, seed, resources=resources)
    learner.trainer.on_epoch = observer.on_epoch
    stream = opened.stream
    if seed != config.seeds[0] and config.stream.split_seed == "run":
        stream = build.build_stream(config, opened.graph, seed, resources=resources)
    first = reports[-1].index + 1 if reports else 0
    if first and store is not None:
        store.restore(learner, first - 1, stream.label_space(first - 1))
    for report in learn_stream(
        learner,
        stream,
        first=first,
        part=config.part,
        preview=config.measures,
        test_every=steps_apart(len(stream), len(stream.tasks), config.test_every),
        threads=config.threads,
    ):
        reports.append(report)
        if store is not None:
            store.keep_task(reports, learner.state(), tasks=len(stream))
        observer.on_task(seed, report)
        yield report
    result = SeedResult(
        seed=seed,
        reports=reports,
        usage=learner.usage,
        coverage_ratio=learner.coverage_ratio,
        peak_rss_bytes=peak_rss_bytes(),
        recomputed=learner.recomputed,
    )
    if store is not None:
        store.keep_result(result)
    return result, learner


def assemble(opened: OpenedRun, seeds: list[SeedResult], opening: float = 0.0) -> RunResult:
    """Make and store the result of all repeats.

    opening: seconds spent once for all of them. The tasks' seconds come from their reports, because
    some may have been learned in other processes.
    """
    result = RunResult(
        config=opened.config,
        seeds=seeds,
        total_seconds=opening + sum(sum(s.seconds.values()) for s in seeds),
        peak_rss_bytes=max(s.peak_rss_bytes for s in seeds) or peak_rss_bytes() or None,
        cumulative=methods.resolve(opened.config.method.name).cumulative,
        **opened.facts,
    )
    if opened.store is not None:
        opened.store.keep_result(result)
    return result


def assemble_if_whole(opened: OpenedRun) -> RunResult | None:
    """Make the result if every repeat is done, in this or other processes.

    If repeats end at the same time, several processes may do this; they write the same bytes.
    """
    assert opened.store is not None
    stored = [opened.store.seed(seed).progress() for seed in opened.config.seeds]
    results = [progress.result for progress in stored if progress is not None]
    finished = [result for result in results if result is not None]
    return assemble(opened, finished) if len(finished) == len(stored) else None
