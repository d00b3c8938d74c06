"""Choosing hyper-parameters: every combination, on validation nodes, the best one kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evergraph.experiments.bench.jobs import BenchConfig, Job, SearchConfig, choose, expand, trials
from evergraph.experiments.build import check
from evergraph.experiments.config import RunConfig, read_toml
from evergraph.experiments.presets import grids
from evergraph.experiments.runner import run
from evergraph.methods import methods
from evergraph.streams import GraphStream

GRID = {"training.lr": [0.1, 0.2], "memory.sampler": ["coverage", "uniform"]}


def job(**values: Any) -> Job:
    method = {"name": "tem", "grid": GRID}
    bench = {"datasets": ["synthetic"], "methods": [method], "seeds": [5, 6], **values}
    return expand(BenchConfig.of(bench), out=Path("out"))[0]


def result(local: float, union: float) -> dict[str, Any]:
    ways = {"local": local, "global": union}
    spreads = {way: {"balanced": {"mean": value, "std": 0.0}} for way, value in ways.items()}
    return {
        "average_accuracy": spreads,
        "average_forgetting": spreads,
        "metric": {"name": "balanced accuracy", "key": "balanced"},
    }


def test_a_trial_for_every_combination_with_the_first_seed_on_validation_nodes():
    tried = trials(job(), SearchConfig())
    assert [(t.config.training.lr, t.config.memory.sampler.name) for t in tried] == [
        (0.1, "coverage"),
        (0.1, "uniform"),
        (0.2, "coverage"),
        (0.2, "uniform"),
    ]
    assert {(t.config.seeds, t.config.part) for t in tried} == {((5,), "validation")}
    folder = Path("out/synthetic/class-il/tem/search")
    assert [t.folder for t in tried][:2] == [
        folder / "lr=0.1,sampler=coverage",
        folder / "lr=0.1,sampler=uniform",
    ]
    assert trials(job(), SearchConfig(seed=9))[0].config.seeds == (9,)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"method.strength": 1e6}, "strength=1e+06"),
        ({"method.beta": 0.1234567}, "beta=0.1234567"),
        ({"memory.budget": 100, "topology.hops": -2}, "budget=100,hops=-2"),
        ({"a.name": 1, "b.name": 2}, "a.name=1,b.name=2"),
        ({"backbone": {"name": "gcn", "hidden": [64]}}, "backbone=name-gcn-hidden-64"),
        ({"topology": "../x y"}, "topology=..-x-y"),
    ],
)
def test_combinations_have_short_names_fit_for_folders(values, name):
    assert replace(job(), tried=values).trial == name


def test_the_best_by_the_way_of_testing_asked_for_is_chosen_and_the_first_of_equals():
    searched = job()
    found = [result(0.3, 0.9), result(0.7, 0.1), result(0.7, 0.2), result(0.1, 0.1)]
    local = SearchConfig()
    tried = list(zip(trials(searched, local), found, strict=True))
    best, told = choose(searched, tried, local)
    assert told["chosen"] == "lr=0.1,sampler=uniform"
    assert best.config.training.lr == 0.1
    assert (best.config.seeds, best.config.part) == ((5, 6), "test")
    _, told = choose(searched, tried, SearchConfig(testing="global"))
    assert told["chosen"] == tried[0][0].trial


def test_a_search_runs_on_validation_nodes_then_its_choice_on_test_nodes(learned):
    folder = learned.out / "synthetic" / "class-il" / "finetune"
    told = json.loads((folder / "search.json").read_text())
    assert [c["name"] for c in told["combinations"]] == ["lr=1e-06", "lr=0.01"]
    scores = {c["name"]: c["average_accuracy"]["local"] for c in told["combinations"]}
    assert told["chosen"] == max(scores, key=lambda name: scores[name]) == "lr=0.01"
    for name, score in scores.items():
        tried = read_toml(folder / "search" / name / "config.toml")
        assert (tried["part"], tried["seeds"]) == ("validation", [0])
        found = json.loads((folder / "search" / name / "result.json").read_text())
        assert found["average_accuracy"]["local"]["balanced"]["mean"] == score
    final = read_toml(folder / "config.toml")
    assert (final["part"], final["seeds"], final["training"]["lr"]) == ("test", [0, 1], 0.01)


def test_validation_runs_never_ask_for_test_nodes(monkeypatch):
    asked = []
    exams = GraphStream.exams

    def spy(self, index, testing, part="test"):
        asked.append(part)
        return exams(self, index, testing, part)

    monkeypatch.setattr(GraphStream, "exams", spy)
    values = {
        "dataset": {"name": "synthetic", "nodes": 300, "classes": 4, "features": 8},
        "method": "tem",
        "training": {"epochs": 1},
        "device": "cpu",
    }
    for part in ("validation", "test"):
        asked.clear()
        run(RunConfig.of({**values, "part": part}))
        assert set(asked) == {part}


@pytest.mark.parametrize("method", sorted(set(grids()) & set(methods.names())))
def test_every_shipped_grid_fits_its_method(method):
    config = BenchConfig.of({"datasets": ["synthetic"], "methods": [method]})
    (searched,) = expand(config, search=True)
    for config_tried in [trial.config for trial in trials(searched, SearchConfig())]:
        check(config_tried)
    assert not expand(config)[0].grid  # unless asked, nothing is searched


def test_a_grid_in_the_file_wins_over_the_shipped_one():
    values = {"datasets": ["synthetic"], "methods": [{"name": "tem", "grid": GRID}, "finetune"]}
    jobs = expand(BenchConfig.of(values), search=True)
    assert [dict(job.grid) for job in jobs] == [GRID, {}]
