"""Whole runs: what they return, what they keep, and that they can be stopped anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.core.errors import ConfigurationError, DataError, ResultsError
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.runner import Observer, complete_together, open_together, run
from evergraph.experiments.store import ResultStore
from evergraph.topology import EmbeddingCache


def small(**values: Any) -> RunConfig:
    base: dict[str, Any] = {
        "dataset": {"name": "synthetic", "nodes": 300, "classes": 6, "features": 8},
        "training": {"epochs": 3, "batch_size": 64},
        "memory": {"budget": 10},
        "device": "cpu",
    }
    return RunConfig.of({"method": "tem"} | base | values)


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Everything but clocks and sizes of the process."""
    return {k: v for k, v in result.items() if k not in ("seconds", "peak_rss_bytes")}


class StopError(Exception):
    """Stands for Ctrl-C."""


def stop_after(tasks: int) -> Observer:
    seen: list[int] = []

    def on_task(seed: int, report: TaskReport) -> None:
        seen.append(report.index)
        if len(seen) == tasks:
            raise StopError

    return Observer(on_task=on_task)


def test_a_result_holds_what_it_promises() -> None:
    result = run(small(seeds=[0, 1])).to_dict()
    for metric in ("average_accuracy", "average_forgetting"):
        for testing in ("local", "global"):
            for average in ("balanced", "plain"):
                assert result[metric][testing][average].keys() == {"mean", "std"}
    assert [m["seed"] for m in result["accuracy_matrix"]] == [0, 1]
    rows = result["accuracy_matrix"][0]["local"]["balanced"]
    assert [len(row) for row in rows] == [1, 2, 3]
    final = [np.mean(m["local"]["balanced"][-1]) for m in result["accuracy_matrix"]]
    assert result["average_accuracy"]["local"]["balanced"]["mean"] == pytest.approx(np.mean(final))
    assert result["average_accuracy"]["local"]["balanced"]["std"] == pytest.approx(
        np.std(final, ddof=1)
    )
    assert 0 < result["coverage_ratio"] <= 1
    assert result["memory"]["floats"] == 6 * 10 * 8
    assert result["memory"]["bytes"] >= 4 * 6 * 10 * 8
    assert result["seconds"].keys() == {"embed", "train", "evaluate", "total"}
    assert result["seconds"]["total"] >= sum(result["seconds"][p] for p in ("embed", "train"))
    assert result["peak_rss_bytes"] > 1e7
    assert result["config"]["topology"]["hops"] == 2
    assert {"evergraph", "torch", "numpy"} <= result["versions"].keys()
    json.dumps(result, allow_nan=False)


def test_a_method_without_memory_has_no_coverage() -> None:
    result = run(small(method="finetune")).to_dict()
    assert result["coverage_ratio"] is None
    assert set(result["memory"].values()) == {0}


# Where a method's own backbone would only make tests slow.
SMALLER = {
    "analytic": {"name": "random-features", "width": 64},
    "joint": {"name": "tuned", "hidden": 32},
}


@pytest.mark.parametrize("method", ["tem", "finetune", "joint"])
@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_a_run_stopped_anywhere_resumes_to_the_same_result(
    method: str, tasks: int, tmp_path: Path
) -> None:
    config = small(method=method, seeds=[0, 1], backbone=SMALLER.get(method))
    whole = run(config).to_dict()
    with pytest.raises(StopError):
        run(config, out=tmp_path / "out", observer=stop_after(tasks))
    assert not (tmp_path / "out" / "result.json").exists()
    resumed = run(config, out=tmp_path / "out", resume=True).to_dict()
    assert comparable(resumed) == comparable(whole)
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert comparable(stored) == comparable(whole)
    assert not list((tmp_path / "out").rglob("*.safetensors"))  # the learner is not needed now


def test_arrays_lie_beside_the_json(tmp_path: Path) -> None:
    result = run(small(), out=tmp_path / "out")
    arrays = np.load(tmp_path / "out" / "seed-0" / "accuracy.npz", allow_pickle=False)
    assert set(arrays) == {"local_balanced", "local_plain", "global_balanced", "global_plain"}
    np.testing.assert_array_equal(arrays["global_plain"], result.seeds[0].matrix("global", "plain"))


def test_resuming_a_finished_run_learns_nothing_again(tmp_path: Path) -> None:
    first = run(small(), out=tmp_path / "out").to_dict()
    before = (tmp_path / "out" / "result.json").read_bytes()
    epochs: list[int] = []
    observer = Observer(on_epoch=lambda task, epoch: epochs.append(epoch))
    again = run(small(), out=tmp_path / "out", resume=True, observer=observer).to_dict()
    assert epochs == []
    assert comparable(again) == comparable(first)
    assert (tmp_path / "out" / "result.json").read_bytes() == before


def test_a_folder_of_another_configuration_is_refused(tmp_path: Path) -> None:
    run(small(), out=tmp_path / "out")
    with pytest.raises(ResultsError, match=r"memory\.budget is 10 there and 11 here"):
        run(small(memory={"budget": 11}), out=tmp_path / "out", resume=True)


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    run(small(), out=tmp_path / "out")
    with pytest.raises(ResultsError, match="holds results already: use --resume"):
        run(small(), out=tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("precious")
    with pytest.raises(ResultsError, match="not an empty folder"):
        run(small(), out=other, resume=True)
    assert [p.name for p in other.iterdir()] == ["thesis.txt"]


def test_a_damaged_checkpoint_is_said_not_guessed_around(tmp_path: Path) -> None:
    with pytest.raises(StopError):
        run(small(), out=tmp_path / "out", observer=stop_after(2))
    state = next((tmp_path / "out").rglob("*.safetensors"))
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(ResultsError, match="cannot be read to go on from"):
        run(small(), out=tmp_path / "out", resume=True)
    progress = tmp_path / "out" / "seed-0" / "progress.json"
    progress.write_text("{")
    with pytest.raises(ResultsError, match=r"progress\.json cannot be read"):
        run(small(), out=tmp_path / "out", resume=True)


def test_a_graph_without_features_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "bare.npz"
    np.savez(path, edge_index=np.zeros((2, 0), np.int32), y=np.arange(40, dtype=np.int16) % 4)
    with pytest.raises(DataError, match="no features"):
        run(small(dataset=str(path)), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_split_seeds_are_shared_by_repeats_unless_asked(tmp_path: Path) -> None:
    from evergraph.experiments.build import build_stream, load_graph

    for split_seed, shared in ((0, True), ("run", False)):
        config = small(stream={"split_seed": split_seed})
        graph = load_graph(config)
        a, b = (build_stream(config, graph, seed).splits[0].test for seed in (0, 1))
        assert a.equal(b) is shared


def test_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ResultsError):
        run(small(), out=blocked / "out")


def test_the_store_lists_a_finished_result(tmp_path: Path) -> None:
    assert ResultStore(tmp_path).finished() is None
    run(small(), out=tmp_path / "out")
    finished = ResultStore(tmp_path / "out").finished()
    assert finished is not None
    assert finished["config"]["method"]["name"] == "tem"


def test_progress_of_the_first_version_is_still_read(tmp_path: Path) -> None:
    whole = run(small(), out=tmp_path / "out").to_dict()
    assert whole["memory"]["samples"] == whole["memory"]["floats"] > 0
    path = tmp_path / "out" / "seed-0" / "progress.json"
    stored = json.loads(path.read_text())
    for key in ("samples", "gradients", "importance", "models", "edges", "peak_rss_bytes"):
        del stored["result"][key]
    del stored["tasks"]
    path.write_text(json.dumps(stored))
    (tmp_path / "out" / "result.json").unlink()
    again = run(small(), out=tmp_path / "out", resume=True).to_dict()
    assert again["accuracy_matrix"] == whole["accuracy_matrix"]
    assert (again["memory"]["bytes"], again["memory"]["samples"]) == (whole["memory"]["bytes"], 0)
    assert again["peak_rss_bytes"] > 1e7


def test_results_from_before_graphs_could_grow_in_other_ways_resume(tmp_path: Path) -> None:
    with pytest.raises(StopError):
        run(small(), out=tmp_path / "out", observer=stop_after(2))
    path = tmp_path / "out" / "config.toml"
    lines = path.read_text().splitlines(keepends=True)
    older = [line for line in lines if not line.startswith(("by = ", "blur = ", "tasks = "))]
    assert len(older) == len(lines) - 2
    path.write_text("".join(older))
    resumed = run(small(), out=tmp_path / "out", resume=True).to_dict()
    assert comparable(resumed) == comparable(run(small()).to_dict())
    with pytest.raises(ResultsError, match=r"stream\.by is 'class' there and 'blurred' here"):
        run(small(stream={"by": "blurred"}), out=tmp_path / "out", resume=True)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_blurred_run_stopped_anywhere_resumes_to_the_same_result(
    tasks: int, tmp_path: Path
) -> None:
    config = small(stream={"by": "blurred", "tasks": 4})
    with pytest.raises(StopError):
        run(config, out=tmp_path / "out", observer=stop_after(tasks))
    resumed = run(config, out=tmp_path / "out", resume=True).to_dict()
    assert comparable(resumed) == comparable(run(config).to_dict())


def test_results_from_before_classes_of_two_were_dropped_resume(tmp_path: Path) -> None:
    run(small(stream={"min_class_size": 2}), out=tmp_path / "out")
    run(small(), out=tmp_path / "out", resume=True)
    with pytest.raises(ResultsError, match=r"stream.min_class_size is 2 there and 4 here"):
        run(small(stream={"min_class_size": 4}), out=tmp_path / "out", resume=True)


METHODS = ("finetune", "tem", "analytic", "joint")


def test_runs_learned_together_come_to_what_each_comes_to_alone(tmp_path: Path) -> None:
    configs = [
        small(method=method, seeds=[0, 1], backbone=SMALLER.get(method)) for method in METHODS
    ]
    runs = open_together(configs, out=[tmp_path / method for method in METHODS])
    together = complete_together(runs, observers=[None] * len(runs))
    for config, result, method in zip(configs, together, METHODS, strict=True):
        assert comparable(result.to_dict()) == comparable(run(config).to_dict())
        assert ResultStore(tmp_path / method).finished() == result.to_dict()


def test_runs_learned_together_embed_every_graph_once(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded: list[int] = []
    encode = EmbeddingCache.encode

    def counted(self: EmbeddingCache, graph: Any) -> Any:
        embedded.append(graph.num_nodes)
        return encode(self, graph)

    monkeypatch.setattr(EmbeddingCache, "encode", counted)
    configs = [small(method=method) for method in ("finetune", "tem", "analytic")]
    runs = open_together(configs, out=[None] * 3)
    complete_together(runs, observers=[None] * 3)
    assert len(embedded) == 3 + 3  # three tasks' own graphs, and everything after each task


def test_runs_learned_together_take_turns_and_resume(tmp_path: Path) -> None:
    turns: list[tuple[str, int]] = []

    def watching(method: str, stop: int) -> Observer:
        def on_task(seed: int, report: TaskReport) -> None:
            turns.append((method, report.index))
            if len(turns) == stop:
                raise StopError

        return Observer(on_task=on_task)

    configs = [small(method=method) for method in ("finetune", "tem")]
    folders: list[Path | None] = [tmp_path / "finetune", tmp_path / "tem"]
    with pytest.raises(StopError):
        complete_together(
            open_together(configs, out=folders),
            observers=[watching("finetune", 3), watching("tem", 3)],
        )
    assert turns == [("finetune", 0), ("tem", 0), ("finetune", 1)]
    runs = open_together(configs, out=folders, resume=True)
    results = complete_together(runs, observers=[None, None])
    for config, result in zip(configs, results, strict=True):
        assert comparable(result.to_dict()) == comparable(run(config).to_dict())


def test_runs_that_learn_different_things_are_not_learned_together(tmp_path: Path) -> None:
    configs = [small(method="tem"), small(method="joint", seeds=[1])]
    with pytest.raises(ConfigurationError, match=r"seeds must be the same .* joint and tem differ"):
        open_together(configs, out=[tmp_path / "tem", tmp_path / "joint"])
    assert not any(tmp_path.iterdir())
