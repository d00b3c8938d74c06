"""``evergraph run`` and what every command has in common: output and exit codes."""

import json
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import evergraph as eg
from evergraph.experiments.store import SeedStore
from forked_command import Forked
from small_runs import keep_task_and_wait
from waiting import until

Call = Callable[..., tuple[str, str]]
SMALL = shlex.split(
    "--dataset synthetic --set dataset.nodes=240 --set dataset.classes=6 --epochs 2 "
    "--budget 5 --device cpu --method tem"
)
TINY = shlex.split(
    "run --dataset synthetic --set dataset.nodes=60 --set dataset.classes=4 "
    "--epochs 1 --device cpu --json"
)
WITHOUT_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


def test_no_argument_teaches(call):
    text, _ = call()
    for command in ("run", "info", "list", "bench", "report", "--resume"):
        assert command in text


def test_json_is_one_object_and_a_run_lands_below_runs(call, tmp_path):
    result = json.loads(call("run", *SMALL, "--seeds", "0,1", "--json")[0])
    assert len(result["accuracy_matrix"]) == 2
    folder = tmp_path / "runs" / "synthetic-tem-class-il"
    assert json.loads((folder / "result.json").read_text()) == result
    # A second run does not overwrite the first; nothing may be stored.
    _, err = call("run", *SMALL, "--budget", "0")
    assert "nothing is stored" in err
    assert (tmp_path / "runs" / "synthetic-tem-class-il-2" / "result.json").exists()


def test_every_option_reaches_the_configuration(call):
    out, _ = call(
        "run",
        *SMALL,
        *shlex.split(
            "--method tem --setting task-il --edges all --topology ppr --hops 3 "
            "--sampler degree --budget 2% --classes-per-task 3 --epochs 1 --lr 0.01 "
            "--weight-decay 0.1 --batch-size full --seed 5 --directed --set "
            "topology.alpha=0.3 --preset paper --json"
        ),
    )
    config = json.loads(out)["config"]
    stream = {key: config["stream"][key] for key in ("setting", "edges", "classes_per_task")}
    assert stream == {"setting": "task-il", "edges": "all", "classes_per_task": 3}
    assert config["topology"] == {
        "name": "ppr",
        "hops": 3,
        "alpha": 0.3,
        "self_loops": True,
        "dtype": "float32",
    }
    assert config["memory"] == {"budget": 0.02, "sampler": {"name": "degree"}}
    assert config["training"]["epochs"] == 1  # an option wins over the preset
    assert config["training"]["batch_size"] == "full"
    assert (config["training"]["lr"], config["training"]["weight_decay"]) == (0.01, 0.1)
    assert config["head"]["bias"] is False  # from the preset
    assert (config["seeds"], config["undirected"]) == ([5], False)


@pytest.mark.usefixtures("undrawn")
def test_several_methods_learn_side_by_side(call, tmp_path):
    both = ("run", *SMALL, "--method", "finetune,tem", "--out", "both")
    out, err = call(*both)
    for method in ("finetune", "tem"):
        assert f'name = "{method}"' in (tmp_path / "both" / method / "config.toml").read_text()
    assert re.search("finetune.*│\n.*tem ", out)  # a row each, in the order given
    assert "results in both; evergraph report both draws figures" in out
    first, last = (line for line in err.splitlines() if "AA" in line)
    assert re.search(
        r"synthetic  seed 0  task 1/3  AA local, global: finetune [\d., ]+ about", first
    )
    assert re.search(r"task 3/3  AA local, global: finetune [\d., ]+; tem [\d., ]+$", last)
    assert (
        call(*both, "--resume", "--report")[0]
        .splitlines()[-1]
        .startswith("open both/report.html in a browser")
    )
    page = (tmp_path / "both" / "report.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "finetune" in page
    found = json.loads(call(*both, "--resume", "--json")[0])  # one object still
    assert list(found["runs"]) == ["finetune", "tem"]
    kept = json.loads((tmp_path / "both" / "tem" / "result.json").read_text())
    assert found["runs"]["tem"]["accuracy_matrix"] == kept["accuracy_matrix"]


def test_a_preset_may_say_something_of_one_method(call):
    Path("mine.toml").write_text(
        "seeds = [3]\n[training]\nlr = 0.1\n[methods.tem.training]\nbatch_size = 32\n"
    )
    out, _ = call("run", *SMALL, "--preset", "mine.toml", "--method", "finetune,tem", "--json")
    configs = [run["config"] for run in json.loads(out)["runs"].values()]
    assert [config["training"]["lr"] for config in configs] == [0.1, 0.1]
    assert [config["training"]["batch_size"] for config in configs] == [512, 32]
    assert [config["seeds"] for config in configs] == [[3], [3]]


@pytest.mark.parametrize(
    "blow", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_killed_or_interrupted_run_resumes_to_the_bit_identical_result(blow, call, tmp_path):
    options = ["run", *SMALL, "--epochs", "20", "--seeds", "0,1", "--json"]
    whole = json.loads(call(*options, "--out", "whole")[0])

    def begin():
        SeedStore.keep_task = keep_task_and_wait

    process = Forked(*options, "--out", "killed", cwd=tmp_path, before=begin)
    progress = tmp_path / "killed" / "seed-0" / "progress.json"
    until(lambda: progress.exists() or process.poll() is not None, seconds=200)
    process.send_signal(blow)
    process.wait()
    said = process.stderr.read()
    assert progress.exists()
    if blow is signal.SIGINT:
        assert process.returncode == 130
        assert "continue with --resume --out killed" in said
    resumed = json.loads(call(*options, "--out", "killed", "--resume")[0])
    for key in ("average_accuracy", "average_forgetting", "accuracy_matrix", "coverage_ratio"):
        assert resumed[key] == whole[key], key


def test_info_of_a_users_file(call, tmp_path):
    path, labels = tmp_path / "mine.npz", np.array([0] * 30 + [1] * 30, dtype=np.int16)
    np.savez(path, edge_index=np.zeros((2, 1), np.int32), y=labels, x=np.ones((60, 5), np.float32))
    facts = json.loads(call("info", str(path), "--json")[0])
    assert (facts["nodes"], facts["classes"], facts["tasks"], facts["features"]) == (60, 2, 1, 5)
    assert facts["class_sizes"] == {"0": 30, "1": 30}
    assert "homophily" in call("info", str(path))[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "temm"], "unknown method 'temm': did you mean 'tem'? choose one of"),
        (["--method", "tem,joint,tem"], "method must name each method once, not 'tem' twice"),
        (["--method", "ewc,mas", "--save", "m.eg"], "--save needs a single method, and 2 are "),
        (["--save", "."], "--save must be a file, and . is a folder"),
        pytest.param(["--device", "cuda"], "no CUDA device", marks=WITHOUT_CUDA),
        (["--seeds", "a"], "--seeds must be comma-separated integers, such as 0,1,2, not 'a'"),
        (["--batch-size", "half"], "batch_size"),
        (["--set", "epohcs=1"], "unknown key 'epohcs': did you mean 'training.epochs'? the conf"),
        (["wordnet"], "run takes no argument 'wordnet': did you mean --dataset wordnet? "),
        (["tem,joint"], "did you mean --method tem,joint? "),
        (["paper"], "did you mean --preset paper? "),
        (["mine.py"], "did you mean --plugin mine.py? "),
        (["--metod", "tem"], "no such option '--metod': did you mean '--method'? evergraph run "),
        (["--method", "slda", "--set", "head.bias=false"], "not use --budget, --epochs, head.bias"),
        (["--method", "slda,auto"], "slda and auto do not use --budget, --epochs: leave that out"),
        (["--method", "tem", "--objective", "plain"], "objective cannot be 'plain' for tem"),
        (["--hops", "two"], "invalid value for '--hops': "),
        (["--protocol", "clgb"], "unknown protocol 'clgb': did you mean 'cglb'?"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_2(options, message, call, tmp_path):
    base = SMALL if "--dataset" not in options else SMALL[6:]
    out, err = call("run", *base, *options, "--out", "out", expect=2)
    assert (out, err[:7], err.count("\n")) == ("", "error: ", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_the_trained_learner_is_written(call, tmp_path):
    path = tmp_path / "new" / "model.eg"
    asked = (*TINY, "--method", "ewc", "--seeds", "0,1", "--out", "a", "--save")
    call(*asked, path)
    learner = eg.load_learner(path)
    assert isinstance(learner, eg.methods.EWC)
    graph = eg.load("synthetic", nodes=60, classes=4)
    config = eg.RunConfig.of({"dataset": {"name": "synthetic", "nodes": 60, "classes": 4}})
    here = eg.run(config, "ewc", epochs=1, device="cpu", seeds=[1], progress=False).learner
    assert learner.predict_proba(graph).equal(here.predict_proba(graph))  # of the last seed
    said = call(*asked, "b", "--resume", expect=2)[1]
    assert "the run had already finished, and its learner was not kept" in said


def test_an_objective_is_one_key_for_every_method(call):
    asked = (*TINY, "--method", "auto,finetune", "--memory", "500KB", "--out")
    runs = json.loads(call(*asked, "a", "--objective", "plain")[0])["runs"]
    again = json.loads(call(*asked, "b", "--set", "objective=plain")[0])["runs"]
    assert runs["auto"]["config"]["method"]["objective"] == "plain"
    assert runs["finetune"]["config"]["training"]["objective"] == "plain"
    assert [run["config"] for run in again.values()] == [run["config"] for run in runs.values()]


def test_an_option_that_one_method_uses_is_named_for_the_others(call):
    said = call(*TINY, "--method", "finetune,slda", "--out", "a")[1]
    assert "slda: option '--epochs' is ignored: the method does not use it" in said


def test_a_run_says_what_a_kept_graph_would_do(call, monkeypatch):
    from evergraph.cli import run_command

    monkeypatch.setattr(run_command, "FAR_BELOW", -1.0)
    within, _ = call("run", *SMALL, "--method", "tem")
    kept, _ = call("run", *SMALL, "--method", "tem", "--edges", "all")
    assert "points below: --edges all keeps the graph" in within.replace("\n", " ")
    assert "points below" not in kept
