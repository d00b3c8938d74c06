"""Whole runs: what they return, what they keep, and that they can be stopped anywhere."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from evergraph.core.errors import ConfigurationError, ResultsError
from evergraph.experiments.build import build_stream, load_graph
from evergraph.experiments.config import RunConfig
from evergraph.experiments.result import RunResult
from evergraph.experiments.runner import Observer, complete_together, open_together, run
from evergraph.experiments.store import ResultStore
from evergraph.nn import Tuned
from evergraph.topology import EmbeddingCache
from evergraph.training import Learner
from small_runs import StopError, comparable, small, stop_after


@pytest.fixture(scope="module", autouse=True)
def _two_candidates() -> Iterator[None]:
    """Let a tuned network choose between two recipes of five: each is trained on every task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tuned, "CANDIDATES", Tuned.CANDIDATES[::3])
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """A run and its folder, which nobody changes."""
    out = tmp_path_factory.mktemp("finished") / "out"
    return run(small(), out=out), out


@cache
def uninterrupted(method: str) -> dict[str, Any]:
    """Return what two seeds of a method come to where nothing stops them."""
    return comparable(run(of_two_seeds(method)).to_dict())


def of_two_seeds(method: str) -> RunConfig:
    return small(method=method, seeds=[0, 1], backbone=SMALLER.get(method), measures=True)


def test_a_result_holds_what_it_promises():
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
    assert result["memory"]["floats"] == 6 * 3 * 4
    assert result["memory"]["bytes"] >= 4 * 6 * 3 * 4
    assert result["seconds"].keys() == {"embed", "train", "evaluate", "total"}
    assert result["seconds"]["total"] >= sum(result["seconds"][p] for p in ("embed", "train"))
    assert result["peak_rss_bytes"] > 1e7
    assert result["config"]["topology"]["hops"] == 2
    assert {"evergraph", "torch", "numpy"} <= result["versions"].keys()
    json.dumps(result, allow_nan=False)
    without = run(small(method="finetune")).to_dict()
    assert without["coverage_ratio"] is None
    assert set(without["memory"].values()) == {0}


# Where a method's own backbone would only make tests slow.
SMALLER = {
    "analytic": {"name": "random-features", "width": 64},
    "joint": {"name": "tuned", "hidden": 32},
}


@pytest.mark.parametrize(("method", "tasks"), [("tem", 3), ("tem", 5), ("joint", 4)])
def test_a_stopped_run_resumes_to_the_same_result(method, tasks, tmp_path):
    config, whole = of_two_seeds(method), uninterrupted(method)
    with pytest.raises(StopError):
        run(config, out=tmp_path / "out", observer=stop_after(tasks))
    assert not (tmp_path / "out" / "result.json").exists()
    assert comparable(run(config, out=tmp_path / "out", resume=True).to_dict()) == whole
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert comparable(stored) == whole
    assert not list((tmp_path / "out").rglob("*.safetensors"))  # the learner is not needed now


def test_a_finished_run_is_not_learned_again(finished):
    result, out = finished
    arrays = np.load(out / "seed-0" / "accuracy.npz", allow_pickle=False)
    assert set(arrays) == {"local_balanced", "local_plain", "global_balanced", "global_plain"}
    np.testing.assert_array_equal(arrays["global_plain"], result.seeds[0].matrix("global", "plain"))
    before = (out / "result.json").read_bytes()
    epochs = []
    observer = Observer(on_epoch=lambda task, epoch: epochs.append(epoch))
    again = run(small(), out=out, resume=True, observer=observer).to_dict()
    assert epochs == []
    assert comparable(again) == comparable(result.to_dict())
    assert (out / "result.json").read_bytes() == before
    told = ResultStore(out).finished()
    assert told["config"]["method"]["name"] == "tem"
    assert ResultStore(out.parent).finished() is None


def test_results_are_never_overwritten(finished, tmp_path):
    with pytest.raises(ResultsError, match=r"memory\.budget is 3 there and 11 here"):
        run(small(memory={"budget": 11}), out=finished[1], resume=True)
    with pytest.raises(ResultsError, match="already holds results: use --resume"):
        run(small(), out=finished[1])
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ResultsError, match="neither empty nor a results folder"):
        run(small(), out=tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(ResultsError):
        run(small(), out=tmp_path / "thesis.txt" / "out")


def test_a_damaged_checkpoint_is_said_not_guessed_around(tmp_path):
    with pytest.raises(StopError):
        run(small(), out=tmp_path / "out", observer=stop_after(2))
    state = next((tmp_path / "out").rglob("*.safetensors"))
    whole = load_file(state)
    save_file({name: value for name, value in whole.items() if name != "generator"}, state)
    with pytest.raises(ResultsError, match=r"safetensors cannot be read to resume.*generator"):
        run(small(), out=tmp_path / "out", resume=True)
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(ResultsError, match="cannot be read to resume"):
        run(small(), out=tmp_path / "out", resume=True)
    progress = tmp_path / "out" / "seed-0" / "progress.json"
    progress.write_text("{")
    with pytest.raises(ResultsError, match=r"progress\.json cannot be read"):
        run(small(), out=tmp_path / "out", resume=True)


def test_a_graph_without_features_has_a_column_of_ones_and_says_so(tmp_path, caplog):
    path, ends = tmp_path / "bare.npz", np.arange(80, dtype=np.int32)
    np.savez(path, edge_index=np.stack([ends, np.roll(ends, 4)]), y=(ends % 4).astype(np.int16))
    assert run(small(dataset=str(path))).seeds
    assert "column of ones" in caplog.text


def test_split_seeds_are_shared_by_repeats_unless_asked():
    for split_seed, shared in ((0, True), ("run", False)):
        config = small(stream={"split_seed": split_seed})
        graph = load_graph(config)
        a, b = (build_stream(config, graph, seed).splits[0].test for seed in (0, 1))
        assert a.equal(b) is shared


METHODS = ("finetune", "tem", "analytic", "joint")


def test_runs_learned_together_come_to_what_each_comes_to_alone(tmp_path):
    configs = [of_two_seeds(method) for method in METHODS]
    runs = open_together(configs, out=[tmp_path / method for method in METHODS])
    together = complete_together(runs, observers=[None] * len(runs))
    for result, method in zip(together, METHODS, strict=True):
        assert comparable(result.to_dict()) == uninterrupted(method)
        assert ResultStore(tmp_path / method).finished() == result.to_dict()


def test_runs_learned_together_embed_every_graph_once(monkeypatch):
    embedded = []
    encode = EmbeddingCache.encode

    def counted(self, graph, rows=None):
        embedded.append(self.resources.cache)
        return encode(self, graph, rows)

    monkeypatch.setattr(EmbeddingCache, "encode", counted)
    names = ("finetune", "tem", "analytic")
    configs = [small(method=name, backbone=SMALLER.get(name)) for name in names]
    runs = open_together(configs, out=[None] * 3)
    complete_together(runs, observers=[None] * 3)
    # Three tasks' own graphs, and everything after each task; a rehearsal shares nothing.
    assert sum(cache is not None for cache in embedded) == 3 + 3


def test_what_runs_share_counts_for_each_of_them():
    configs = [small(method=name) for name in ("finetune", "tem")]
    runs = open_together(configs, out=[None] * 2)
    results = complete_together(runs, observers=[None] * 2)
    spent = [sum(result.seeds[0].seconds.values()) for result in results]
    first, second = (r.total_seconds - s for r, s in zip(results, spent, strict=True))
    assert first == pytest.approx(second)  # loading
    saved = runs[0].resources.cache.saved  # embeddings that the second found ready
    assert results[1].seeds[0].seconds["embed"] >= saved > 0
    assert results[0].seeds[0].seconds["embed"] >= saved


def test_packages_and_kernels_are_loaded_before_any_of_several_runs_is_timed(monkeypatch):
    learned = []
    fit_task = Learner.fit_task
    monkeypatch.setattr(
        Learner, "fit_task", lambda self, task: (learned.append(self), fit_task(self, task))[1]
    )
    configs = [small(method=name) for name in ("finetune", "ewc")]
    runs = open_together(configs, out=[None] * 2)
    timed = [*(each for run in runs for each in run.ready.values())]
    complete_together(runs, observers=[None] * 2)
    names = [learner.name for learner in learned[: learned.index(timed[0])]]
    assert sorted(set(names)) == ["ewc", "finetune"]


def test_runs_learned_together_take_turns_and_resume(tmp_path):
    turns = []

    def watching(method, stop):
        def on_task(seed, report):
            turns.append((method, report.index))
            if len(turns) == stop:
                raise StopError

        return Observer(on_task=on_task)

    configs = [small(method=method) for method in ("finetune", "tem")]
    folders = [tmp_path / "finetune", tmp_path / "tem"]
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


def test_runs_that_learn_different_things_are_not_learned_together(tmp_path):
    configs = [small(method="tem"), small(method="joint", seeds=[1])]
    with pytest.raises(ConfigurationError, match=r"seeds must be the same .* joint and tem differ"):
        open_together(configs, out=[tmp_path / "tem", tmp_path / "joint"])
    assert not any(tmp_path.iterdir())
