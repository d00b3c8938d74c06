"""The command line as a user meets it: its output and its exit code."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch

from forked_command import Forked
from waiting import until

SMALL = [
    "--dataset", "synthetic", "--set", "dataset.nodes=240", "--set", "dataset.classes=6",
    "--epochs", "2", "--budget", "5", "--device", "cpu", "--method", "tem",
]  # fmt: skip


WITHOUT_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
Outcome = subprocess.CompletedProcess[str]


class Evergraph(Protocol):
    """Calls the command line."""

    def __call__(self, *arguments: str, expect: int = 0) -> Outcome: ...


@pytest.fixture
def evergraph(call: Any) -> Evergraph:
    """Run ``evergraph ...`` and tell what came of it."""

    def run(*arguments: str, expect: int = 0) -> Outcome:
        return Outcome(arguments, expect, *call(*arguments, expect=expect))

    return run


def write_graph(path: Path, **changes: np.ndarray) -> Path:
    generator = np.random.default_rng(0)
    arrays = {
        "edge_index": generator.integers(60, size=(2, 150)).astype(np.int32),
        "y": (np.arange(60) % 4).astype(np.int16),
        "x": generator.normal(size=(60, 5)).astype(np.float32),
    }
    np.savez(path, **(arrays | changes))
    return path


def test_no_argument_teaches(tmp_path: Path, evergraph: Evergraph) -> None:
    text = evergraph().stdout
    for command in ("run", "info", "list", "bench", "report", "--resume"):
        assert command in text


def test_json_is_exactly_one_object_and_a_run_alone_lands_below_runs(
    tmp_path: Path, evergraph: Evergraph
) -> None:
    done = evergraph("run", *SMALL, "--seeds", "0,1", "--json")
    result = json.loads(done.stdout)
    assert len(result["accuracy_matrix"]) == 2
    assert 0 <= result["average_accuracy"]["global"]["plain"]["mean"] <= 1
    folder = tmp_path / "runs" / "synthetic-tem-class-il"
    assert json.loads((folder / "result.json").read_text()) == result
    evergraph("run", *SMALL)  # a second run does not overwrite the first
    assert (tmp_path / "runs" / "synthetic-tem-class-il-2" / "result.json").exists()


def test_every_option_reaches_the_configuration(tmp_path: Path, evergraph: Evergraph) -> None:
    done = evergraph(
        "run", *SMALL, "--method", "tem", "--setting", "task-il", "--edges", "all",
        "--topology", "ppr", "--hops", "3", "--sampler", "degree", "--budget", "2%",
        "--classes-per-task", "3", "--epochs", "1", "--lr", "0.01", "--weight-decay", "0.1",
        "--batch-size", "full", "--seed", "5", "--directed", "--set", "topology.alpha=0.3",
        "--preset", "paper", "--json"
    )  # fmt: skip
    config = json.loads(done.stdout)["config"]
    assert config["stream"]["setting"] == "task-il"
    assert config["stream"]["edges"] == "all"
    assert config["stream"]["classes_per_task"] == 3
    assert config["topology"] == {
        "name": "ppr", "hops": 3, "alpha": 0.3, "self_loops": True, "dtype": "float32",
    }  # fmt: skip
    assert config["memory"] == {"budget": 0.02, "sampler": {"name": "degree"}}
    assert config["training"]["epochs"] == 1  # an option wins over the preset
    assert config["training"]["batch_size"] == "full"
    assert (config["training"]["lr"], config["training"]["weight_decay"]) == (0.01, 0.1)
    assert config["head"]["bias"] is False  # from the preset
    assert (config["seeds"], config["undirected"]) == ([5], False)


@pytest.mark.usefixtures("undrawn")
def test_several_methods_learn_side_by_side(tmp_path: Path, evergraph: Evergraph) -> None:
    done = evergraph("run", *SMALL, "--method", "finetune,tem", "--out", "both")
    for method in ("finetune", "tem"):
        config = (tmp_path / "both" / method / "config.toml").read_text()
        assert f'name = "{method}"' in config
        assert (tmp_path / "both" / method / "result.json").exists()
    assert re.search("finetune.*│\n.*tem ", done.stdout)  # a row each, in the order given
    assert "results in both; evergraph report both draws figures" in done.stdout
    first, last = (line for line in done.stderr.splitlines() if "AA" in line)
    assert re.search(
        r"synthetic  seed 0  task 1/3  AA local, global: finetune [\d., ]+ about", first
    )
    assert re.search(r"task 3/3  AA local, global: finetune [\d., ]+; tem [\d., ]+$", last)
    again = evergraph(
        "run", *SMALL, "--method", "finetune,tem", "--out", "both", "--resume", "--json", "--report"
    )
    found = json.loads(again.stdout)  # one object still
    page = (tmp_path / "both" / "report.html").read_text()
    assert "finetune" in page
    assert "tem" in page
    assert list(found["runs"]) == ["finetune", "tem"]
    kept = json.loads((tmp_path / "both" / "tem" / "result.json").read_text())
    assert found["runs"]["tem"]["accuracy_matrix"] == kept["accuracy_matrix"]


def test_a_preset_may_say_something_of_one_method(tmp_path: Path, evergraph: Evergraph) -> None:
    Path("mine.toml").write_text(
        "seeds = [3]\n[training]\nlr = 0.1\n[methods.tem.training]\nbatch_size = 32\n"
    )
    done = evergraph("run", *SMALL, "--preset", "mine.toml", "--method", "finetune,tem", "--json")
    runs = json.loads(done.stdout)["runs"]
    assert [run["config"]["training"]["lr"] for run in runs.values()] == [0.1, 0.1]
    assert [run["config"]["training"]["batch_size"] for run in runs.values()] == [512, 32]
    assert [run["config"]["seeds"] for run in runs.values()] == [[3], [3]]


def test_a_method_is_named_once(tmp_path: Path, evergraph: Evergraph) -> None:
    twice = "error: method must name each method once, not 'tem' twice"
    assert twice in evergraph("run", "--method", "tem,joint,tem", expect=2).stderr
    done = evergraph("run", "--method", "finetune,joint", "--set", "method=tem", expect=2)
    assert twice in done.stderr
    assert not any(tmp_path.iterdir())


def test_domains_arrive_by_time(tmp_path: Path, evergraph: Evergraph) -> None:
    for name in ("a", "b"):
        write_graph(tmp_path / f"{name}.npz")
    done = evergraph(
        "run", "--dataset", "joined", "--set", 'dataset.parts=["a.npz", "b.npz"]', "--by", "time",
        "--method", "slda", "--device", "cpu", "--json",
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["config"]["stream"]["by"] == "time"
    assert result["config"]["dataset"] == {"name": "joined", "parts": ["a.npz", "b.npz"]}
    assert result["dataset"]["task_classes"][1] == []  # the second graph brings no new class


@pytest.mark.parametrize(
    "blow", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_killed_or_interrupted_run_resumes_to_the_bit_identical_result(
    blow: signal.Signals, tmp_path: Path, evergraph: Evergraph
) -> None:
    options = ["run", *SMALL, "--epochs", "60", "--seeds", "0,1", "--json"]
    whole = json.loads(evergraph(*options, "--out", "whole").stdout)
    process = Forked(*options, "--out", "killed", cwd=tmp_path)
    progress = tmp_path / "killed" / "seed-0" / "progress.json"
    until(lambda: progress.exists() or process.poll() is not None, seconds=200)
    process.send_signal(blow)
    process.wait()
    said = process.stderr.read()
    assert progress.exists()
    if blow is signal.SIGINT:
        assert process.returncode == 130
        assert "continue with --resume --out killed" in said
    assert not (tmp_path / "killed" / "result.json").exists(), "it was done before the kill"
    resumed = json.loads(evergraph(*options, "--out", "killed", "--resume").stdout)
    for key in ("average_accuracy", "average_forgetting", "accuracy_matrix", "coverage_ratio"):
        assert resumed[key] == whole[key], key


def test_list_names_everything(tmp_path: Path, evergraph: Evergraph) -> None:
    from evergraph.memory import samplers
    from evergraph.methods import methods
    from evergraph.topology import topologies

    for kind, names in (
        ("methods", methods.names()),
        ("topologies", topologies.names()),
        ("samplers", samplers.names()),
        ("datasets", ["wordnet", "arxiv", "corafull", "reddit", "products", "synthetic"]),
        ("presets", ["paper", "released-code"]),
        ("benches", ["quick"]),
        ("backbones", ["pdgnn"]),
    ):
        listed = json.loads(evergraph("list", kind, "--json").stdout)[kind]
        assert set(names) <= set(listed)
    assert "Algorithm 1" in evergraph("list", "samplers").stdout
    counts = json.loads(evergraph("list", "--json").stdout)
    assert counts["methods"] == len(methods.names())
    assert "evergraph list presets" in evergraph("list").stdout


def test_info_of_a_users_file(tmp_path: Path, evergraph: Evergraph) -> None:
    path = write_graph(tmp_path / "mine.npz", y=np.array([0] * 30 + [1] * 30, dtype=np.int16))
    facts = json.loads(evergraph("info", str(path), "--json").stdout)
    assert (facts["nodes"], facts["classes"], facts["tasks"], facts["features"]) == (60, 2, 1, 5)
    assert facts["class_sizes"] == {"0": 30, "1": 30}
    assert "homophily" in evergraph("info", str(path)).stdout


@pytest.mark.usefixtures("undrawn")
def test_report_compares_runs_and_draws_them(tmp_path: Path, evergraph: Evergraph) -> None:
    done = evergraph("run", *SMALL, "--method", "finetune,tem", "--out", "runs", "--report")
    assert done.stdout.splitlines()[-1].startswith("open runs/report.html in a browser")
    text = evergraph("report", "runs").stdout
    assert re.search(r"finetune .* class-il", text)
    assert re.search(r"tem .* class-il", text)
    assert text.splitlines()[-1] == f"report: {Path('runs', 'report.html')}"
    assert "<!DOCTYPE html>" in (tmp_path / "runs" / "report.html").read_text("utf-8")
    assert len(list((tmp_path / "runs" / "report" / "figures").glob("learning_curves-*.png"))) == 1
    nothing = evergraph("report", "absent", expect=2)
    assert nothing.stderr.startswith("error: no such results folder")


def test_classes_too_small_for_any_task_are_named(tmp_path: Path, evergraph: Evergraph) -> None:
    labels = np.array([0] * 58 + [1] * 2, dtype=np.int16)
    path = write_graph(tmp_path / "tiny.npz", y=labels)
    done = evergraph("run", "--dataset", str(path), "--out", "out", expect=2)
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("classes [1] have fewer than 3 nodes (min_class_size)")
    assert last.startswith("error: no task can be made: 1 class has at least 3 nodes")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "temm"], "unknown method 'temm': did you mean 'tem'? choose one of"),
        (["--dataset", "cora"], "corafull"),
        (["--setting", "class"], "unknown setting 'class'"),
        (["--by", "time"], "by = 'time' needs the time of every node"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        pytest.param(["--device", "cuda"], "no CUDA device", marks=WITHOUT_CUDA),
        (["--dataset", "absent.npz"], "no such file or folder: absent.npz"),
        (["--dataset", "cut.npz"], "cut.npz"),
        (["--dataset", "nan.npz"], "features hold NaN or infinity"),
        (["--dataset", "edge.npz"], "joins 0 and 60"),
        (["--budget", "lots"], "budget must be"),
        (["--seeds", "a"], "--seeds must be comma-separated integers, such as 0,1,2, not 'a'"),
        (["--seed", "5", "--repeats", "2"], "only one of seed, seeds and repeats can be given"),
        (["--repeats", "0"], "repeats must be an integer of at least 1, not 0"),
        (["--batch-size", "half"], "batch_size"),
        (["--classes-per-task", "0"], "classes_per_task must be an integer of at least 1"),
        (["--set", "epohcs=1"], "unknown key 'epohcs': did you mean 'training.epochs'? the conf"),
        (["--set", "method.wieghting=plain"], "did you mean 'weighting'? it takes "),
        (["wordnet"], "run takes no argument 'wordnet': did you mean --dataset wordnet? "),
        (["tem,joint"], "did you mean --method tem,joint? "),
        (["paper"], "did you mean --preset paper? "),
        (["mine.toml"], "did you mean --preset mine.toml? "),
        (["mine.py"], "did you mean --plugin mine.py? "),
        (["--metod", "tem"], "no such option '--metod': did you mean '--method'? evergraph run "),
        (["--hops", "two"], "invalid value for '--hops': "),
        (["--set", "method.refresh=embeddings"], "edges must be 'all', not 'within'"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_2(
    options: list[str], message: str, tmp_path: Path, evergraph: Evergraph
) -> None:
    whole = write_graph(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    write_graph(tmp_path / "nan.npz", x=np.full((60, 5), np.nan, dtype=np.float32))
    write_graph(tmp_path / "edge.npz", edge_index=np.array([[0], [60]], dtype=np.int32))
    base = SMALL if "--dataset" not in options else SMALL[6:]
    done = evergraph("run", *base, *options, "--out", "out", expect=2)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_budgets_of_zero_and_beyond_a_class_are_allowed_and_said(
    tmp_path: Path, evergraph: Evergraph
) -> None:
    none = evergraph("run", *SMALL, "--budget", "0", "--json")
    assert "nothing is stored" in none.stderr
    assert json.loads(none.stdout)["memory"]["floats"] == 0
    much = evergraph("run", *SMALL, "--budget", "1000", "--json")
    assert "all of them are kept" in much.stderr


def test_an_empty_class_a_class_of_one_and_no_edges_are_learned_around(
    tmp_path: Path, evergraph: Evergraph
) -> None:
    labels = np.array([0] * 20 + [2] * 19 + [3] * 20 + [4], dtype=np.int16)  # no 1, a single 4
    path = write_graph(tmp_path / "odd.npz", y=labels, edge_index=np.zeros((2, 0), np.int32))
    done = evergraph("run", "--dataset", str(path), "--method", "slda", "--json")
    assert "class 4 is left out: fewer than 3 nodes (min_class_size)" in done.stderr
    assert json.loads(done.stdout)["dataset"]["task_classes"] == [[0, 2]]
