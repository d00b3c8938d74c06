"""Benchmarks in a pool of processes: the same results, whatever fails or dies on the way."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
import torch

from evergraph.core.errors import ResultsError
from evergraph.core.resources import exactly_threads
from evergraph.evaluation import average_accuracy
from evergraph.experiments import runner
from evergraph.experiments.bench import pool
from evergraph.experiments.bench.benchmark import open_bench, run_bench
from evergraph.experiments.bench.jobs import BenchConfig, expand
from evergraph.experiments.bench.pool import default_workers, environment_of_workers, threads_of
from evergraph.experiments.bench.worker import learn, prepare
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run
from evergraph.experiments.store import ResultStore, SeedStore
from evergraph.reports.runs import collect
from small_runs import CLOCKS, comparable, job_of, keep_task_and_wait
from waiting import until


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_results_are_those_of_a_plain_run_bit_for_bit(learned, tmp_path):
    for row in learned.rows:
        out = tmp_path / row.job.label
        with exactly_threads(1):
            run(row.job.config, out=out)
        theirs, ours = (json.loads((f / "result.json").read_text()) for f in (row.job.folder, out))
        assert all(theirs[clock] for clock in CLOCKS)
        assert comparable(theirs) == comparable(ours)
        searched = {"search", "search.json"}
        assert names(row.job.folder) - searched == names(out)
        assert names(row.job.folder / "seed-1") == names(out / "seed-1")
        assert (row.job.folder / "config.toml").read_text() == (out / "config.toml").read_text()
        # What it cost is told by the workers.
        files = [row.job.folder / f"seed-{seed}" / "progress.json" for seed in (0, 1)]
        seeds = [json.loads(file.read_text()) for file in files]
        peak = max(seed["result"]["peak_rss_bytes"] for seed in seeds)
        assert row.result["peak_rss_bytes"] == peak > 1e7
        spent = sum(sum(each["seconds"].values()) for seed in seeds for each in seed["reports"])
        assert row.result["seconds"]["total"] == pytest.approx(spent)


def test_it_tells_what_happens(learned):
    finals = [e for e in learned.events if e.job.trial is None and e.job.label == "tem-tiny"]
    assert [e.seed for e in finals if e.kind == "started"] == [0, 1]
    ends = [e for e in finals if e.kind == "done"]
    assert all(e.progress.result is not None for e in ends)
    mean = sum(average_accuracy(e.progress.matrix) for e in ends) / 2
    row = next(row for row in learned.rows if row.job.label == "tem-tiny")
    assert row.result["average_accuracy"]["local"]["balanced"]["mean"] == pytest.approx(mean)
    # Reports know labels and leave searches out.
    found = collect(learned.out)
    assert sorted(run.method for run in found) == ["finetune", "tem-tiny"]
    assert len(collect(learned.out / "synthetic" / "class-il" / "finetune" / "search")) == 2


def test_resuming_a_finished_bench_does_nothing_again(learned):
    before = {path: path.read_bytes() for path in learned.out.rglob("*.json")}
    events = []
    bench = open_bench(learned.config, out=learned.out, resume=True)
    rows = run_bench(bench, workers=1, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    assert len(events) == bench.size
    assert [row.result for row in rows] == [row.result for row in learned.rows]
    assert {path: path.read_bytes() for path in learned.out.rglob("*.json")} == before
    # Results are never overwritten.
    with pytest.raises(ResultsError, match="already holds results: use --resume"):
        open_bench(learned.config, out=learned.out)
    other = learned.config.model_copy(update={"seeds": (0, 1, 2)})
    with pytest.raises(ResultsError, match="holds another configuration: seeds"):
        open_bench(other, out=learned.out, resume=True)


def test_broken_data_and_a_killed_worker_are_rows_and_the_rest_goes_on(
    tmp_path, request, monkeypatch
):
    monkeypatch.setattr(pool, "get_context", lambda _: get_context("fork"))  # others import torch
    monkeypatch.setattr(pool, "threads_of", lambda _: 1)  # a fork waits for threads it has not
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK")
    synthetic = {"name": "synthetic", "nodes": 300, "classes": 6, "features": 8}
    long = {"name": "finetune", "label": "victim"}
    values = {
        "datasets": [str(broken), synthetic],
        "common": {"device": "cpu", "training": {"epochs": 2}},
        "methods": [long, "tem"],
    }
    config = BenchConfig.of(values)

    def kill(event):
        if (event.kind, event.job.label) == ("task", "victim"):
            patch.undo()
            (worker,) = active_children()
            worker.kill()

    with monkeypatch.context() as patch:
        patch.setattr(SeedStore, "keep_task", keep_task_and_wait)
        rows = run_bench(open_bench(config, out=tmp_path / "out"), workers=1, on_event=kill)
    said = {str(row.job): row.failure.error for row in rows if row.failure is not None}
    assert said.keys() == {
        "victim on broken, class-il",
        "tem on broken, class-il",
        "victim on synthetic, class-il",
    }
    assert "broken.npz: is not a complete .npz file" in said["tem on broken, class-il"]
    assert "was killed (SIGKILL)" in said["victim on synthetic, class-il"]
    assert rows[-1].result is not None
    folder = tmp_path / "out" / "synthetic" / "class-il" / "victim"
    assert "SIGKILL" in json.loads((folder / "failure.json").read_text())["error"]

    learned_before = json.loads((folder / "seed-0" / "progress.json").read_text())["reports"]
    events = []
    resumed = open_bench(config, out=tmp_path / "out", resume=True)
    request.getfixturevalue("learned_here")
    rows = run_bench(resumed, workers=1, on_event=events.append)
    assert [row.failure is None for row in rows] == [False, False, True, True]
    assert not (folder / "failure.json").exists()
    reports = json.loads((folder / "seed-0" / "progress.json").read_text())["reports"]
    assert reports[: len(learned_before)] == learned_before  # it went on where it stopped
    assert [str(e.job) for e in events if e.kind == "kept"] == ["tem on synthetic, class-il"]


def test_any_exception_becomes_a_sentence(monkeypatch, tmp_path):
    fail = Mock(
        side_effect=RuntimeError("expected all tensors to be on the same device\nand a long story")
    )
    monkeypatch.setattr(runner, "open_run", fail)
    failure = learn(job_of(RunConfig(), tmp_path), 0).failure
    assert failure.error == "RuntimeError: expected all tensors to be on the same device"
    assert (failure.type, "and a long story" in failure.traceback) == ("RuntimeError", True)


def test_what_a_run_logs_is_handed_on(tmp_path):
    values = {
        "dataset": {"name": "synthetic", "nodes": 70, "classes": 7, "features": 4},
        "method": "tem",
        "training": {"epochs": 1},
        "device": "cpu",
    }
    ending = learn(job_of(RunConfig.of(values), tmp_path / "out"), 0)
    assert ending.failure is None
    assert (
        "class 6 is left out: it comes last, and a task has 2 classes (classes_per_task)"
        in ending.notes
    )


def test_several_processes_may_claim_a_folder_at_once(tmp_path):
    config = resolved(RunConfig())

    def claim(place):
        ResultStore(tmp_path / f"{place // 8}").open(config, resume=True)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(claim, range(80)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".config.toml-x1").write_text("")  # another one is at it just now
    ResultStore(tmp_path / "other").open(config, resume=False)


def test_workers_fit_the_machine(monkeypatch):
    def fitting(free, dataset="synthetic", device="cpu"):
        monkeypatch.setattr(pool, "free_memory", lambda: int(free))
        values = {"datasets": [dataset], "methods": ["finetune"], "common": {"device": device}}
        return default_workers(expand(BenchConfig.of(values)))

    monkeypatch.setattr("evergraph.cluster.ray_cluster.cpu_count", lambda: 16)
    assert fitting(5e9) == 3  # 1.5 GB each
    assert fitting(1e12) == 16
    assert fitting(0) == 1
    assert fitting(100e9, "products") == 2  # its graph, its tasks and states: 34 GB each
    monkeypatch.setattr(pool, "choose_device", torch.device)
    assert fitting(1e12, device="cuda") == 4
    assert (threads_of(1), threads_of(3), threads_of(99)) == (16, 5, 1)


def test_the_environment_of_this_process_stays_as_it_was(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with environment_of_workers(3):
        assert (os.environ["OMP_WAIT_POLICY"], os.environ["OMP_NUM_THREADS"]) == ("PASSIVE", "3")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "OMP_NUM_THREADS" not in os.environ


def test_workers_leave_with_a_parent_that_was_killed(tmp_path):
    context, file = get_context("fork"), tmp_path / "worker"

    def work():
        prepare(1)
        file.write_text(str(os.getpid()))
        signal.pause()

    def parent():
        context.Process(target=work).start()
        signal.pause()

    process = context.Process(target=parent)
    process.start()
    until(lambda: file.exists() and file.read_text(), seconds=60)
    worker = psutil.Process(int(file.read_text()))
    process.kill()
    process.join()
    left = psutil.wait_procs([worker], timeout=20)[1]
    for each in left:
        each.kill()
    assert not left
