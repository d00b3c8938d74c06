"""Work that takes too long is stopped, and goes on with less where memory does not suffice."""

import json
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from evergraph.core.resources import Resources
from evergraph.experiments import runner
from evergraph.experiments.bench import pool
from evergraph.experiments.bench import worker as less
from evergraph.experiments.bench.pool import TIME_LIMIT, run_work
from evergraph.experiments.bench.worker import (
    Event,
    attempts_with_less_memory,
    is_out_of_memory,
    learn,
    with_less_memory,
)
from evergraph.experiments.config import RunConfig
from small_runs import job_of


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work in a folder "slow" never end, and all other be done at once, without processes."""

    def submit(self: Any, job: Any, seed: int) -> Future[Event]:
        future = Future()
        if job.folder.name != "slow":
            future.set_result(Event("done", job, seed))
        return future

    monkeypatch.setattr(pool._ProcessSlot, "submit", submit)


def told(*names: str, **limits: float) -> list[tuple[str, int]]:
    events = []
    work = [(job_of(CONFIG, Path("nowhere", name)), seed) for seed, name in enumerate(names)]
    run_work(work, workers=1, on_event=events.append, **limits)
    for event in events:
        assert event.failure is None or event.failure.type == TIME_LIMIT
    return [(event.kind, event.seed) for event in events]


@pytest.mark.usefixtures("slow")
def test_work_that_is_late_takes_its_like_along_and_no_other():
    assert told("slow", "quick", "slow", limit=0.01) == [
        ("started", 0),
        ("failed", 0),
        ("failed", 2),
        ("started", 1),
        ("done", 1),
    ]


@pytest.mark.usefixtures("slow")
def test_what_is_left_when_time_is_up_neither_fails_nor_is_done(monkeypatch):
    begun, submit = [], pool._ProcessSlot.submit

    def submitted(slot, *work):
        begun.append(work)
        return submit(slot, *work)

    monkeypatch.setattr(pool._ProcessSlot, "submit", submitted)
    monkeypatch.setattr(time, "monotonic", lambda: float(len(begun)))
    assert told("quick", "slow", "quick", until=2.0) == [
        ("started", 0),
        ("done", 0),
        ("started", 1),
    ]
    assert told("quick", until=2.0) == []


CONFIG = RunConfig.of(
    {
        "dataset": {"name": "synthetic", "nodes": 120, "classes": 4, "features": 8},
        "method": "finetune",
        "training": {"epochs": 2},
        "device": "cpu",
    }
)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make believe that there is a GPU, which nothing is done on."""

    def choose(name: str) -> torch.device:
        return torch.device("cpu" if name == "cpu" else "cuda")

    monkeypatch.setattr(less, "choose_device", choose)


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_that_is_too_small_gives_way_to_main_memory_and_then_to_the_cpu():
    ways = list(attempts_with_less_memory(CONFIG.model_copy(update={"device": "auto"})))
    configs, resources, _ = zip(*ways, strict=True)
    assert [config.device for config in configs] == ["auto", "auto", "cpu", "cpu"]
    assert [each.on_gpu for each in resources] == [None, 0, None, None]
    assert [each.memory_limit is None for each in resources] == [True, True, True, False]
    assert len(list(attempts_with_less_memory(CONFIG))) == 2
    assert Resources(on_gpu=0).left_on(torch.device("cuda")) == 0


@pytest.mark.usefixtures("with_gpu")
def test_it_goes_on_until_it_fits_and_says_so_once_each(caplog):
    tried = []

    def do(config, resources):
        tried.append(config.device)
        if config.device != "cpu":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with_less_memory(CONFIG.model_copy(update={"device": "auto"}), do)
    assert tried == ["auto", "auto", "cpu"]
    assert [record.getMessage() for record in caplog.records] == [
        "finetune on synthetic: the GPU has too little memory: continuing with the graph in main "
        "memory",
        "finetune on synthetic: the GPU still has too little memory: continuing on the CPU",
    ]


def test_other_errors_and_the_last_lack_are_raised():
    with pytest.raises(RuntimeError, match="shapes differ"):
        with_less_memory(CONFIG, Mock(side_effect=RuntimeError("shapes differ")))
    with pytest.raises(MemoryError):
        with_less_memory(CONFIG, Mock(side_effect=MemoryError))
    assert is_out_of_memory(RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"))


def test_a_run_that_lacks_memory_after_a_task_ends_in_the_same_bits(tmp_path, monkeypatch):
    plain, cut = tmp_path / "plain", tmp_path / "cut"
    assert learn(job_of(CONFIG, plain), 0).failure is None
    real, calls = runner.learn_seed, []

    def once(opened, seed):
        calls.append(opened.resources.memory_limit)
        if len(calls) > 1:
            return real(opened, seed)
        next(runner.learn_seed_by_task(opened, seed))
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(runner, "learn_seed", once)
    ending = learn(job_of(CONFIG, cut), 0)
    assert ending.failure is None
    assert [limit is None for limit in calls] == [True, False]
    assert any("large arrays in files" in note for note in ending.notes)
    ours, theirs = (json.loads((f / "result.json").read_text()) for f in (cut, plain))
    assert ours["accuracy_matrix"] == theirs["accuracy_matrix"]
