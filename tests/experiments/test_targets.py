"""Runs on graphs whose nodes have several labels or numbers."""

import json
import logging
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.evaluation.evaluator import Measures
from evergraph.experiments.build import fitted_to, resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.result import SeedResult
from evergraph.experiments.runner import run
from evergraph.graphs import Graph, Targets
from evergraph.memory import MemoryUsage
from small_runs import StopError, comparable, small, stop_after

SMALL: dict[str, Any] = {
    "backbone": {"name": "random-features", "width": 16},
    "device": "cpu",
    "progress": False,
}


def graph_of(kind: str, nodes: int = 60) -> Graph:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(nodes, 3, generator=generator)
    values = features[:, :2] + 1 if kind == "numbers" else (features[:, :2] > 0).float()
    edges = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    targets = Targets(values, kind, ("a", "b"))
    return Graph.from_edges(edges, features=features, targets=targets)


MAIN = {"labels": ("micro F1", "micro_f1"), "numbers": ("R2", "r2")}
BESIDE = {"labels": "average_precision", "numbers": "mae"}


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_a_run_stopped_and_resumed_says_what_it_was_measured_by(kind, tmp_path):
    way = {"tasks": 3, "by": "random", **SMALL}
    with pytest.raises(StopError):
        run(graph_of(kind), "analytic", out=tmp_path / "a", observer=stop_after(2), **way)
    result = run(graph_of(kind), "analytic", out=tmp_path / "a", resume=True, **way)
    assert result.seeds[0].rows == run(graph_of(kind), "analytic", **way).seeds[0].rows
    name, key = MAIN[kind]
    stored = json.loads((tmp_path / "a" / "result.json").read_text())
    assert stored["metric"] == {"name": name, "key": key}
    assert stored["dataset"]["targets"] == {"kind": kind, "names": ["a", "b"], "known": 1.0}
    matrix = result.seeds[0].matrix("global", key)
    assert matrix.shape == (3, 3)
    assert np.isfinite(matrix[2]).all()
    assert result.average_accuracy("global") == pytest.approx(matrix[2].mean())
    assert stored["measures"]["global"][BESIDE[kind]]["mean"] > 0
    assert stored["average_accuracy"]["global"][key]["mean"] == result.average_accuracy("global")
    assert f"measured={name!r}" in repr(result)
    assert set(result.to_frame().average) == set(result.seeds[0].averages)


@pytest.mark.parametrize("edges", ["within", "all"])
def test_the_default_method_gives_way(edges, caplog):
    config = resolved(RunConfig.of({"dataset": "mine.npz", "stream": {"edges": edges}}))
    with caplog.at_level(logging.WARNING):
        fitted = fitted_to(graph_of("labels"), config)
    assert fitted.method.name == "analytic"
    assert fitted.backbone.name == "random-features"
    assert (fitted.stream.by, fitted.stream.tasks) == ("random", 5)
    assert [record.getMessage() for record in caplog.records] == [
        "mine.npz: its nodes have several labels: method analytic in place of auto, which learns "
        "classes, 5 tasks in random order"
    ]


@pytest.mark.parametrize("method", ["tem", {"name": "auto", "probes": 5}])
def test_other_methods_refuse_before_anything_is_written(method, tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"learns one class per node.*use method 'analytic'"
    ):
        run(graph_of("numbers"), method, out=tmp_path / "a", device="cpu", progress=False)
    assert not (tmp_path / "a").exists()


@pytest.mark.usefixtures("undrawn")
def test_reports_name_the_measure(tmp_path):
    pytest.importorskip("matplotlib")
    from evergraph.reports.report import write_report
    from evergraph.reports.run_tables import comparison
    from evergraph.reports.runs import collect

    run(graph_of("numbers"), "analytic", tasks=2, by="random", out=tmp_path / "n", **SMALL)
    page = write_report(collect(tmp_path), tmp_path).read_text()
    assert "Average R2 (AA) and average forgetting (AF) after the last task, in percent" in page
    assert "MAE: mean absolute error" in page
    assert "<dt>R2</dt>" in page
    assert "class-balanced," not in page
    assert comparison(collect(tmp_path)).caption.startswith("R2 in percent")


def measured(**values: Any) -> RunConfig:
    return small(**{"measures": True} | values)


def seed_of(*measures: Measures) -> SeedResult:
    reports = [TaskReport(index, {}, {}, each) for index, each in enumerate(measures)]
    return SeedResult(0, reports, MemoryUsage())


def test_a_measure_is_the_mean_of_the_tasks_where_it_has_a_meaning():
    tasks = [
        {"local": {"rejection_auroc": 0.5}},
        {"local": {"rejection_auroc": 1.0}},
        {"local": {"rejection_auroc": None}},
    ]
    seed = seed_of(*tasks)
    assert seed.measure("local", "rejection_auroc") == 0.75
    assert seed.measure("local", "forward_transfer") is None


def test_a_result_tells_them_over_seeds():
    result = run(measured(seeds=[0, 1]))
    told = result.to_dict()
    for testing in ("local", "global"):
        found = told["measures"][testing]
        auroc = [seed.measure(testing, "rejection_auroc") for seed in result.seeds]
        assert found["rejection_auroc"]["mean"] == pytest.approx(np.mean(auroc))
        assert found["rejection_auroc"]["std"] == pytest.approx(np.std(auroc, ddof=1))
        assert found["rejection_auroc"]["mean"] > 0.6  # classes are apart: better than guessing
        assert 0 < found["calibration_error"]["mean"] < 1
        assert found["forward_transfer"] is None  # every task brings new classes only
        curve = told["average_accuracy_curve"][testing]["plain"]
        anytime = told["anytime_accuracy"][testing]["plain"]["mean"]
        assert anytime == pytest.approx(np.mean(curve))
    json.dumps(told, allow_nan=False)


def test_classes_that_come_again_carry_over():
    stream = {"by": "blurred", "tasks": 4, "blur": 0.5}
    seed = run(measured(stream=stream, training={"epochs": 20, "batch_size": 64})).seeds[0]
    for testing in ("local", "global"):
        found = [each.measures[testing]["forward_transfer"] for each in seed.reports]
        assert found[-1] is None
        assert all(value is not None for value in found[:-1])
        assert seed.measure(testing, "forward_transfer") > 0.2


@pytest.mark.parametrize(("method", "edges"), [("tem", "all"), ("joint", "within")])
def test_looking_ahead_changes_no_other_number(method, edges):
    way = {"method": method, "stream": {"edges": edges}, "backbone": "pdgnn"}
    looking, blind = (run(measured(**way, measures=on)).to_dict() for on in (True, False))
    assert looking["measures"]["local"]["rejection_auroc"] is not None
    for way, measures in blind["measures"].items():
        assert measures["rejection_auroc"] is None
        assert measures["calibration_error"] == looking["measures"][way]["calibration_error"]
    apart = ("config", "measures")
    assert comparable(looking, *apart) == comparable(blind, *apart)
