"""``--protocol`` on the command line: listed, run, compared, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evergraph.experiments.bench import benchmark
from evergraph.experiments.bench.benchmark import Bench

TINY = [
    "--dataset", "synthetic", "--set", "dataset.nodes=90", "--set", "dataset.classes=6",
    "--epochs", "1", "--device", "cpu",
]  # fmt: skip
BENCH = """\
datasets = [{ name = "synthetic", nodes = 90, classes = 6 }]
common = { device = "cpu", training = { epochs = 1 }, stream = { edges = "all" } }
methods = ["finetune"]
"""


def test_the_papers_number_stands_first_and_is_named(call: Any, tmp_path: Path) -> None:
    out, err = call("run", *TINY, "--method", "finetune", "--protocol", "llm4gcl", "--out", "out")
    first = next(line for line in out.splitlines() if "local" in line or "global" in line)
    assert "global, plain: as llm4gcl reports" in first
    assert err.count("under protocol") == 1  # what no setting could follow, and nothing else
    told = json.loads((tmp_path / "out" / "result.json").read_text())
    assert told["protocol"] == told["config"]["protocol"] == "llm4gcl"
    assert told["dataset"]["task_classes"] == [[0, 1, 2], [3, 4, 5]]


def test_several_methods_are_compared_by_the_papers_number(call: Any) -> None:
    methods = ["--method", "finetune,tpp", "--protocol", "tpp", "--classes-per-task", "3"]
    out, err = call("run", *TINY, *methods, "--out", "out")
    assert out.index("as the protocol's paper reports them") < out.index("class-balanced accuracy")
    assert "tpp-per-test-set" in out
    assert "protocol tpp" in out, "runs under a protocol say so where they are compared"
    assert err.count("stream.classes_per_task is 3 and not 2") == 2  # one line a method


def test_a_benchmark_under_a_protocol(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Bench] = []
    monkeypatch.setattr(benchmark, "run_bench", lambda bench, **_: (begun.append(bench), [])[1])
    (tmp_path / "mine.toml").write_text(BENCH)
    call("bench", "mine.toml", "--protocol", "puma", "--json", "--out", "out")
    (job,) = begun[0].jobs
    assert (job.config.protocol, job.config.memory.budget) == ("puma", 0.005)
    assert job.config.stream.edges == "all", "what the file says wins"
