"""``evergraph bench`` as a user meets it."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from evergraph.cli.progress import BenchLine, BenchProgress
from evergraph.experiments.bench import benchmark
from evergraph.experiments.bench.benchmark import Bench
from evergraph.experiments.bench.config import BenchConfig, SearchConfig
from evergraph.experiments.bench.jobs import expand, trials
from evergraph.experiments.bench.pool import run_work
from evergraph.experiments.bench.worker import Event, Failure, SeedProgress
from forked_command import Forked
from waiting import until

SMALL = """
datasets = [{ name = "synthetic", nodes = 120, classes = 4, features = 16, noise = 0.5 }]
settings = ["task-il"]
seeds = [0, 1]
methods = ["finetune", { name = "joint", run = { backbone = "pdgnn" } }]
common = { training = { epochs = 60 } }
"""
ON_CPU = ["--device", "cpu", "--workers", "1"]


def in_other_processes() -> None:
    """Let a forked benchmark learn in processes of its own: undo ``learned_here``."""
    benchmark.run_work = run_work


@pytest.mark.usefixtures("learned_here", "undrawn")
def test_an_interrupted_bench_says_how_to_go_on_and_does(tmp_path: Path, call: Any) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
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
    assert not psutil.wait_procs(workers, timeout=5)[1]

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
    assert report.count("synthetic") == 4  # accuracies, and what is kept


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
def test_what_is_wrong_is_one_sentence_and_exit_code_2(
    options: list[str], message: str, tmp_path: Path, call: Any
) -> None:
    out, err = call("bench", *options, "--out", "out", expect=2)
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("learned_here")
def test_failures_and_searches_are_told_and_the_exit_code_is_1(tmp_path: Path, call: Any) -> None:
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
    assert "note: class 6 is left out: it comes last, and a task needs two" in err
    assert err.endswith("1 of 2 runs failed: --resume --out runs/bench-mine retries them\n")
    told, _ = call("bench", "mine.toml", "--resume", "--json", expect=1)
    first, second = json.loads(told)["rows"]
    assert first["chosen"].keys() == {"training.lr"}
    assert (second["state"], second["type"]) == ("failed", "DataError")
    call("bench", "mine.toml", expect=1)  # without --resume, in a new folder
    assert (tmp_path / "runs" / "bench-mine-2" / "bench.toml").exists()


def opened(methods: list[Any], **values: Any) -> Bench:
    config = BenchConfig.of({"datasets": ["synthetic"], "methods": methods, **values})
    return Bench(expand(config), {}, SearchConfig())


def render(progress: BenchProgress) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(progress._table())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_the_live_table_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = opened(["tem", "joint"], seeds=[0, 1])
    progress, job = BenchProgress(bench), bench.jobs[0]
    half = SeedProgress(2, 4, False, accuracy=0.5, forgetting=-0.25, seconds=90.0)
    progress.on_event(Event("started", job, 0))
    progress.on_event(Event("task", job, 0, half))
    shown = render(progress)
    for text in ("running task 3 of 4", "50.0", "-25.0", "2 min", "waiting", "left"):
        assert text in shown
    whole = SeedProgress(4, 4, True, accuracy=0.7, forgetting=-0.1, seconds=120.0)
    progress.on_event(Event("done", job, 0, whole))
    assert "1/2" in render(progress)
    progress.on_event(Event("failed", job, 1, failure=Failure("out of luck", "LuckError")))
    assert "failed" in render(progress)
    # A long table shows what is going on.
    bench = opened([{"name": "tem", "label": f"tem-{number:02d}"} for number in range(40)])
    progress = BenchProgress(bench)
    progress.on_event(Event("started", bench.jobs[33], 0))
    monkeypatch.setattr(progress._console, "size", (100, 17))
    shown = render(progress)
    assert "tem-33" in shown
    assert "... and 30 more" in shown


def test_a_search_is_followed_too() -> None:
    [job] = opened([{"name": "tem", "grid": {"memory.budget": [1, 2]}}]).jobs
    first, second = trials(job, SearchConfig())
    line = BenchLine(seeds=1, trials=2)
    assert line.state == "waiting"
    line.follow(Event("done", first, 0))
    assert line.state == "searching 1 of 2"
    line.follow(Event("done", second, 0))
    line.follow(Event("started", job, 0))
    assert line.state == "running task 1"
