"""``evergraph bench`` as a user meets it."""

import json
import signal

import psutil
import pytest

from evergraph.cli.output import BenchProgress
from evergraph.experiments.bench import benchmark
from evergraph.experiments.bench.benchmark import Bench
from evergraph.experiments.bench.jobs import BenchConfig, SearchConfig, expand, trials
from evergraph.experiments.bench.pool import run_work
from evergraph.experiments.bench.worker import Event, Failure
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.store import SeedProgress, SeedStore
from forked_command import Forked
from waiting import until

SMALL = """
datasets = [{ name = "synthetic", nodes = 120, classes = 4, features = 16, noise = 0.5 }]
settings = ["task-il"]
seeds = [0, 1]
methods = ["finetune", { name = "joint", run = { backbone = "pdgnn" } }]
common = { training = { epochs = 20 } }
plugins = ["waiting.py"]
"""
# The workers are fresh processes: what they do after a task is changed by a plugin.
WAITING = """
import time
from pathlib import Path
from evergraph.experiments.store import SeedStore

keep_task = SeedStore.keep_task

def keep_task_and_wait(store, *given, **more):
    keep_task(store, *given, **more)
    while Path("wait").exists():
        time.sleep(0.01)

SeedStore.keep_task = keep_task_and_wait
"""
ON_CPU = ["--device", "cpu", "--workers", "1"]


def in_other_processes() -> None:
    """Let a forked benchmark learn in processes of its own: undo ``learned_here``."""
    benchmark.run_work = run_work


@pytest.mark.usefixtures("learned_here", "own_parts", "undrawn")
def test_an_interrupted_bench_says_how_to_go_on_and_does(tmp_path, call, monkeypatch):
    monkeypatch.setattr(SeedStore, "keep_task", SeedStore.keep_task)  # undo the plugin at the end
    for name, text in (("small.toml", SMALL), ("waiting.py", WAITING), ("wait", "")):
        (tmp_path / name).write_text(text)
    asked = ["bench", "small.toml", *ON_CPU, "--out", "out"]
    bench = Forked(*asked, cwd=tmp_path, before=in_other_processes)
    try:
        until(lambda: list(tmp_path.rglob("progress.json")), seconds=200)
        workers = psutil.Process(bench.pid).children()
        bench.send_signal(signal.SIGINT)
        assert bench.wait() == 130
    finally:
        bench.kill()
    said = bench.stderr.read()
    assert "continue with --resume --out out" in said
    assert "Traceback" not in said
    assert not psutil.wait_procs(workers, timeout=60)[1]
    (tmp_path / "wait").unlink()

    refused = call(*asked, expect=2)
    assert "out already holds results: use --resume" in refused[1]
    out, err = call(*asked, "--resume", "--json")
    told = json.loads(out)
    assert (told["folder"], len(told["rows"])) == ("out", 2)
    assert {row["state"] for row in told["rows"]} == {"done"}
    for row in told["rows"]:
        result = json.loads((tmp_path / row["folder"] / "result.json").read_text())
        assert row["average_accuracy"] == result["average_accuracy"]
    assert "joint on synthetic, task-il, seed 1: AA 100.0" in err
    assert "4 of 4 done" in err

    text, _ = call(*asked, "--resume")  # nothing is left
    assert text.count("synthetic") == 2
    assert "results in out" in text
    report, _ = call("report", "out")
    assert report.count("synthetic") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["quik"], "unknown bench 'quik': did you mean 'quick'"),
        (["absent.toml"], "absent.toml: cannot be read"),
        (["quick", "--set", "backbone=gcn"], "tem on synthetic, class-il: tem stores embeddings"),
        (["quick", "--workers", "0"], "invalid value for '--workers': "),
        (["quick", "slow"], "bench takes no further argument 'slow'"),
        (["quick", "--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(options, message, tmp_path, call):
    out, err = call("bench", *options, "--out", "out", expect=2)
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("learned_here")
def test_failures_and_searches_are_told_and_the_exit_code_is_1(tmp_path, call):
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "mine.toml").write_text(
        """
        datasets = [{ name = "synthetic", nodes = 70, classes = 7, features = 4 }, "broken.npz"]
        common = { device = "cpu", training.epochs = 1 }
        [[methods]]
        name = "finetune"
        grid.training.lr = [0.1, 0.2]
        """
    )
    out, err = call("bench", "mine.toml", expect=1)
    assert "lr=0.2" in out
    assert out.count("chosen") == 2  # the column's name, and one of the two
    assert "the search stopped at lr=0.1: broken.npz: is not a complete .npz file" in out
    assert "note: class 6 is left out: it comes last, and a task has 2 classes" in err
    assert err.endswith("1 of 2 runs failed: --resume --out runs/bench-mine retries them\n")
    told, _ = call("bench", "mine.toml", "--resume", "--json", expect=1)
    first, second = json.loads(told)["rows"]
    assert first["chosen"].keys() == {"training.lr"}
    assert (second["state"], second["type"]) == ("failed", "DataError")
    call("bench", "mine.toml", expect=1)  # without --resume, in a new folder
    assert (tmp_path / "runs" / "bench-mine-2" / "bench.toml").exists()


def test_progress_counts_what_is_learned_and_what_never_will_be(capsys):
    methods = ["tem", {"name": "joint", "grid": {"memory.budget": [1, 2]}}]
    config = BenchConfig.of({"datasets": ["synthetic"], "methods": methods, "seeds": [0, 1]})
    plain, searched = expand(config)
    first, second = trials(searched, SearchConfig())
    bench = Bench([plain, searched], {searched.folder: [first, second]}, SearchConfig())
    progress = BenchProgress(bench)
    rows = [[0.8], [0.7, 0.7], [0.7, 0.7, 0.7], [0.5, 0.8, 0.7, 0.8]]
    reports = [
        TaskReport(i, {"local": {"balanced": row}}, {"train": 30.0}, {})
        for i, row in enumerate(rows)
    ]
    half, whole = SeedProgress(reports[:2], 4, None), SeedProgress(reports, 4, None)
    progress.on_event(Event("kept", plain, 0, whole))
    progress.on_event(Event("started", plain, 1))
    progress.on_event(Event("task", plain, 1, half))
    assert capsys.readouterr().err == ""
    assert sum(progress._shares.values()) == 1.5
    progress.on_event(Event("done", plain, 1, whole, notes=("note",)))
    assert capsys.readouterr().err.startswith(
        "tem on synthetic, class-il, seed 1: AA 70.0, AF -6.7 local, 2 min; 2 of 6 done, about "
    )
    lucky = Failure("out of luck", "LuckError")
    for trial in (first, second):
        progress.on_event(Event("started", trial, 0))
        progress.on_event(Event("failed", trial, 0, failure=lucky))
    progress.on_event(Event("failed", searched, 0, failure=lucky))  # so seed 1 never begins
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("joint on synthetic, class-il, budget=1, validation failed: out of")
    assert lines[-1].endswith("seed 0 failed: out of luck; 5 of 5 done")
    assert list(progress.notes) == ["note"]
