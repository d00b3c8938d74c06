"""Runs and benchmarks on Ray: the numbers of one process, also when a worker is killed."""

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from evergraph.closed_form import statistics
from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.resources import Resources
from evergraph.experiments.bench.benchmark import open_bench, run_bench
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.bench.pool import run_work
from evergraph.experiments.bench.worker import Event
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run
from evergraph.topology import column_blocks
from small_runs import comparable, job_of

SYNTHETIC = {"name": "synthetic", "nodes": 300, "classes": 6, "features": 8, "noise": 1.2}


@pytest.fixture
def _everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give small graphs to workers too, and compute on as many threads here as there."""
    monkeypatch.setattr(column_blocks, "SHARED_FROM", 0)
    monkeypatch.setattr(statistics, "BLOCK_ROWS", 16)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Watched:
    """Gives work to another engine, and keeps account of what was given."""

    def __init__(self, engine: RayEngine) -> None:
        self.engine = engine
        self.workers, self.machines = engine.workers, engine.machines
        self.given: list[str] = []

    def map(self, work: Any, *items: Any, **shared: Any) -> Iterator[Any]:
        self.given.append(work.__name__)
        return self.engine.map(work, *items, **shared)


@pytest.mark.usefixtures("_everything_is_shared")
def test_a_run_learns_what_it_learns_in_one_process(ray_engine):
    values = {"dataset": SYNTHETIC, "method": "analytic", "device": "cpu"}
    config = RunConfig.of(values | {"backbone": {"name": "random-features", "width": 64}})
    watched = Watched(ray_engine)
    shared = run(config, resources=Resources(engine=watched))
    assert [seed.rows for seed in shared.seeds] == [seed.rows for seed in run(config).seeds]
    assert {"encode_columns", "count_block"} <= set(watched.given)


def kill_a_worker() -> None:
    """Kill one of Ray's workers that is at it."""
    busy = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.cmdline() and process.cmdline()[0].startswith("ray::_learn")
    ]
    os.kill(busy[0].pid, signal.SIGKILL)


def test_a_bench_is_the_same_on_ray_though_a_worker_is_killed(ray_engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {
        "datasets": [SYNTHETIC],
        "seeds": [0, 1],
        "common": {"device": "cpu", "training": {"epochs": 100}},
        "methods": [{"name": "tem", "run": {"memory": {"budget": 3}}}],
    }
    config, events = BenchConfig.of(values), list[Event]()

    def watch(event):
        events.append(event)
        if event.kind == "task" and [e.kind for e in events].count("task") == 1:
            kill_a_worker()

    opened = open_bench(config, out=Path("on-ray"))  # a relative folder
    rows = run_bench(opened, workers=2, on_event=watch, pool=partial(run_work, engine=ray_engine))
    assert [row.failure for row in rows] == [None]
    assert "task" in {event.kind for event in events}
    assert [e.kind for e in events].count("done") == opened.size == 2
    before = torch.get_num_threads()
    torch.set_num_threads(ray_engine.threads)
    for row in rows:
        run(row.job.config, out=tmp_path / "here" / row.job.label)
        both = (row.job.folder, tmp_path / "here" / row.job.label)
        ours, theirs = (json.loads((folder / "result.json").read_text()) for folder in both)
        assert comparable(ours) == comparable(theirs)
    torch.set_num_threads(before)
    again = []
    resumed = open_bench(config, out=Path("on-ray"), resume=True)
    run_bench(resumed, workers=2, on_event=again.append, pool=partial(run_work, engine=ray_engine))
    assert {event.kind for event in again} == {"kept"}


def test_a_folder_workers_cannot_see_is_a_failed_row(ray_engine, tmp_path):
    events = []
    work = [(job_of(RunConfig(), tmp_path / "nowhere"), 0)]
    run_work(work, workers=1, on_event=events.append, engine=ray_engine)
    assert [event.kind for event in events] == ["started", "failed"]
    assert "use a folder that all machines share" in events[-1].failure.error


def test_work_stops_when_the_bench_does(ray_engine, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    values = {"dataset": SYNTHETIC, "method": "finetune", "device": "cpu"}
    long = RunConfig.of(values | {"training": {"epochs": 100_000}})

    def interrupt(event):
        if event.seed == 1:
            raise KeyboardInterrupt

    work = [(job_of(long, folder), seed) for seed in (0, 1)]
    with pytest.raises(KeyboardInterrupt):
        run_work(work, workers=2, on_event=interrupt, engine=ray_engine)
    # Both workers are free again, or this would wait for minutes.
    assert list(ray_engine.map(abs, [-1, -2, -3])) == [1, 2, 3]
