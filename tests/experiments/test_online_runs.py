"""Runs whose tasks come in batches: how often they are tested, what they keep, how they go on."""

from typing import Any

import pytest

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.worker import read_progress
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.presets import read_preset
from evergraph.experiments.protocol import steps_apart
from evergraph.experiments.result import RunResult
from evergraph.experiments.runner import run
from evergraph.reports.runs import collect
from small_runs import StopError, small, stop_after


def online(**values: Any) -> RunConfig:
    """200 nodes of four classes: two tasks, of which each comes in ten batches."""
    base = {
        "dataset": {"name": "synthetic", "nodes": 200, "classes": 4, "features": 8},
        "stream": {"by": "online", "batch": 6, "edges": "all"},
        "training": {"epochs": 1, "batch_size": 64},
    }
    return small(**base | values)


def rows_of(result: RunResult) -> Any:
    return result.to_dict()["accuracy_matrix"]


def test_a_test_comes_after_every_few_batches_and_after_the_last(tmp_path):
    # 60 training nodes a task in batches of 6: ten batches each
    result = run(online(test_every=8), out=tmp_path)
    assert (result.dataset["tasks"], result.dataset["steps"]) == (2, 20)
    assert result.seeds[0].tested_after == result.to_dict()["tested_after"] == [8, 16, 20]
    assert result.seeds[0].matrix("local", "balanced").shape == (3, 2)
    frame = result.to_frame()
    assert sorted(frame.after.unique()) == [7, 15, 19]  # counted from 0, as tasks are
    assert len(result.to_dict()["average_accuracy_curve"]["local"]["plain"]) == 3
    means = [sum(row) / len(row) for row in rows_of(result)[0]["global"]["plain"]]
    assert result.anytime_accuracy("global", "plain") == pytest.approx(sum(means) / 3)
    told = result.to_dict()["anytime_accuracy"]["global"]["plain"]
    assert told == {"mean": result.anytime_accuracy("global", "plain"), "std": None}
    [found] = collect(tmp_path)
    assert found.tested_after == [8, 16, 20]
    assert (found.setting, found.step) == ("class-il, online, all edges", "batch")
    assert found.main("anytime_accuracy", "local")["mean"] == result.anytime_accuracy()


def test_how_often_it_is_tested():
    often, seldom = run(online(test_every=5)), run(online(test_every=10))
    every_other = rows_of(often)[0]["local"]["plain"][1::2]
    assert every_other == rows_of(seldom)[0]["local"]["plain"]
    # Tasks too may be tested seldom.
    every = run(online(stream={"classes_per_task": 1}))
    seldom = run(online(stream={"classes_per_task": 1}, test_every=3))
    assert seldom.seeds[0].tested_after == [3, 4]
    all_rows = rows_of(every)[0]["global"]["balanced"]
    assert rows_of(seldom)[0]["global"]["balanced"] == [all_rows[2], all_rows[3]]
    # About twenty tests unless it is said.
    assert steps_apart(7, 7, None) == 1
    assert [steps_apart(steps, 7, None) for steps in (20, 21, 1051)] == [1, 2, 53]
    assert steps_apart(1051, 7, 10) == 10
    with pytest.raises(ConfigurationError, match="test_every"):
        online(test_every=0)


def test_a_stopped_run_goes_on_from_its_last_test(tmp_path):
    config = online(test_every=4)
    with pytest.raises(StopError):
        run(config, out=tmp_path / "stopped", observer=stop_after(3))
    states = [path.name for path in (tmp_path / "stopped" / "seed-0").glob("state-*")]
    assert states == ["state-0011.safetensors"]  # one learner, that of the last test
    progress = read_progress(tmp_path / "stopped", 0)
    assert (progress.done, progress.tasks, progress.result) == (12, 20, None)
    resumed = run(config, out=tmp_path / "stopped", resume=True)
    assert rows_of(resumed) == rows_of(run(config))


@pytest.mark.parametrize("preset", ["cat", "puma", "online", "drifting"])
def test_presets_of_streams_and_condensed_memories_run(preset):
    dataset = {"name": "synthetic", "nodes": 200, "classes": 4, "features": 8}
    short = {"dataset": dataset, "device": "cpu", "training": {"epochs": 5}}
    values = merged(read_preset(preset), short)
    if preset in ("cat", "puma"):
        values["memory"] = {"budget": 4, "sampler": {"name": "distribution-matching", "steps": 2}}
    if preset == "drifting":
        values["stream"] |= {"tasks": 4}
    result = run(RunConfig.of(values))
    assert result.average_accuracy("global") > 0.5
    assert result.config.method.parameters.get("pseudo_labels") == (
        0.9 if preset == "puma" else None
    )
    assert result.config.method.parameters["restart"] is (preset == "puma")
