"""``--seed``, ``--seeds`` and ``--repeats`` of every command that has them."""

import json
import shlex
from typing import Any

import pytest

from evergraph.core.errors import EvergraphError
from evergraph.experiments import plan, runner
from evergraph.experiments.bench import benchmark
from evergraph.studies import theorem

WAYS = [
    (("--seed", "5"), [5]),
    (("--seeds", "0,1,2"), [0, 1, 2]),
    (("--seeds", "0"), [0]),
    (("--seeds", "3,"), [3]),
    (("--repeats", "5"), [0, 1, 2, 3, 4]),
]


class SeenError(EvergraphError):
    """Nothing is learned here: the seeds are all that is looked at."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Keep the seeds that a command was going to run, and stop it there."""
    found = []

    def stop(seeds: Any) -> None:
        found.append(list(seeds))
        raise SeenError("seen")

    monkeypatch.setattr(runner, "open_together", lambda configs, **_: stop(configs[0].seeds))
    monkeypatch.setattr(plan, "plan_run", lambda config, **_: stop(config.seeds))
    monkeypatch.setattr(benchmark, "open_bench", lambda config, **_: stop(config.seeds))
    monkeypatch.setattr(theorem.Theorem, "run", lambda _, options: stop(options.repeats()))
    return found


COMMANDS = [
    ("run", "--dataset", "synthetic"),
    ("plan", "synthetic"),
    ("bench", "quick"),
    ("reproduce", "theorem"),
]


# Every way of one command, and one way of every command.
@pytest.mark.parametrize(
    ("command", "asked", "seeds"),
    [*((COMMANDS[0], *way) for way in WAYS), *((command, *WAYS[4]) for command in COMMANDS[1:])],
)
def test_each_means_the_same_everywhere(call, seen, command, asked, seeds):
    call(*command, *asked, expect=2)
    assert seen == [seeds]


def test_one_seed_after_seeds_is_that_seed(call, seen):
    call(*COMMANDS[0], "--seeds", "5", expect=2)
    assert seen == [[5]]
    _, err = call(*COMMANDS[0], "--seed", "5", "--repeats", "5", expect=2)
    assert "only one of seed, seeds and repeats can be given, not seed and repeats" in err


def test_options_replace_what_a_file_says(call, seen, tmp_path):
    (tmp_path / "mine.toml").write_text('dataset = "synthetic"\nrepeats = 4\n')
    for asked in ((), ("--seed", "7"), ("--set", "seed=8")):
        call("run", "--preset", "mine.toml", *asked, expect=2)
    assert seen == [[0, 1, 2, 3], [7], [8]]


TINY = shlex.split(
    "--dataset synthetic --set dataset.nodes=90 --set dataset.classes=6 --epochs 1 --device cpu"
)
BENCH = """\
datasets = [{ name = "synthetic", nodes = 90, classes = 6 }]
common = { device = "cpu", training = { epochs = 1 }, stream = { edges = "all" } }
methods = ["finetune"]
"""


def test_the_papers_number_stands_first_and_is_named(call, tmp_path):
    out, err = call("run", *TINY, "--method", "finetune", "--protocol", "llm4gcl", "--out", "out")
    first = next(line for line in out.splitlines() if "local" in line or "global" in line)
    assert "global, plain: as llm4gcl reports" in first
    assert err.count("under protocol") == 1  # what no setting could follow, and nothing else
    told = json.loads((tmp_path / "out" / "result.json").read_text())
    assert told["protocol"] == told["config"]["protocol"] == "llm4gcl"
    assert told["dataset"]["task_classes"] == [[0, 1, 2], [3, 4, 5]]


def test_several_methods_are_compared_by_the_papers_number(call):
    methods = ["--method", "finetune,tpp", "--protocol", "tpp", "--classes-per-task", "3"]
    out, err = call("run", *TINY, *methods, "--out", "out")
    assert out.index("as the protocol's paper reports them") < out.index("class-balanced accuracy")
    assert "tpp-per-test-set" in out
    assert "protocol tpp" in out, "runs under a protocol say so where they are compared"
    assert err.count("stream.classes_per_task is 3 and not 2") == 2  # one line a method


def test_bench_under_protocol(call, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(benchmark, "run_bench", lambda bench, **_: (begun.append(bench), [])[1])
    (tmp_path / "mine.toml").write_text(BENCH)
    call("bench", "mine.toml", "--protocol", "puma", "--json", "--out", "out")
    (job,) = begun[0].jobs
    assert (job.config.protocol, job.config.memory.budget) == ("puma", 0.005)
    assert job.config.stream.edges == "all", "what the file says wins"
