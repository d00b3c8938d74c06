"""What is measured beside accuracy, from the run to its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.evaluation.evaluator import Measures
from evergraph.experiments.config import RunConfig
from evergraph.experiments.result import SeedResult
from evergraph.experiments.runner import run
from small_runs import StopError, comparable, small, stop_after


def measured(**values: Any) -> RunConfig:
    return small(**{"measures": True} | values)


def seed_of(*measures: Measures) -> SeedResult:
    return SeedResult(0, [], {}, None, 0, 0, measures=list(measures))


def test_a_measure_is_the_mean_of_the_tasks_where_it_has_a_meaning() -> None:
    tasks: list[Measures] = [
        {"local": {"rejection_auroc": 0.5}},
        {"local": {"rejection_auroc": 1.0}},
        {"local": {"rejection_auroc": None}},
        {},  # learned by the first version, and resumed
    ]
    seed = seed_of(*tasks)
    assert seed.measure("local", "rejection_auroc") == 0.75
    assert seed.measure("local", "forward_transfer") is None
    assert seed.measure("global", "rejection_auroc") is None


def test_a_result_tells_them_over_seeds() -> None:
    result = run(measured(seeds=[0, 1]))
    told = result.to_dict()
    for testing in ("local", "global"):
        found = told["measures"][testing]
        auroc = [seed.measure(testing, "rejection_auroc") for seed in result.seeds]
        assert found["rejection_auroc"]["mean"] == pytest.approx(np.mean(auroc))  # type: ignore[arg-type]
        assert found["rejection_auroc"]["std"] == pytest.approx(np.std(auroc, ddof=1))  # type: ignore[arg-type]
        assert found["rejection_auroc"]["mean"] > 0.6  # classes are apart: better than guessing
        assert 0 < found["calibration_error"]["mean"] < 1
        assert found["forward_transfer"] is None  # every task brings new classes only
        curve = told["average_accuracy_curve"][testing]["plain"]
        area = told["area_under_curve"][testing]["plain"]["mean"]
        assert area == pytest.approx(np.mean(curve))
    json.dumps(told, allow_nan=False)


def test_classes_that_come_again_carry_over() -> None:
    stream = {"by": "blurred", "tasks": 4, "blur": 0.5}
    seed = run(measured(stream=stream, training={"epochs": 20, "batch_size": 64})).seeds[0]
    for testing in ("local", "global"):
        found = [task[testing]["forward_transfer"] for task in seed.measures]
        assert found[-1] is None
        assert all(value is not None for value in found[:-1])
        assert seed.measure(testing, "forward_transfer") > 0.2  # type: ignore[operator]


@pytest.mark.parametrize(("method", "edges"), [("tem", "all"), ("joint", "within")])
def test_looking_ahead_changes_no_other_number(method: str, edges: str) -> None:
    way: Any = {"method": method, "stream": {"edges": edges}, "backbone": "pdgnn"}
    looking, blind = (run(measured(**way, measures=on)).to_dict() for on in (True, False))
    assert looking["measures"]["local"]["rejection_auroc"] is not None
    for way, measures in blind["measures"].items():
        assert measures["rejection_auroc"] is None
        assert measures["calibration_error"] == looking["measures"][way]["calibration_error"]
    apart = ("config", "measures")
    assert comparable(looking, *apart) == comparable(blind, *apart)


def test_progress_without_measures_is_still_read(tmp_path: Path) -> None:
    config = measured(measures=False)
    with pytest.raises(StopError):
        run(config, out=tmp_path / "out", observer=stop_after(2))
    path = tmp_path / "out" / "seed-0" / "progress.json"
    stored = json.loads(path.read_text())
    for report in stored["reports"]:
        del report["measures"]
    path.write_text(json.dumps(stored))
    settings = tmp_path / "out" / "config.toml"
    settings.write_text(settings.read_text().replace("measures = false\n", ""))
    result = run(config, out=tmp_path / "out", resume=True)
    assert [bool(measured) for measured in result.seeds[0].measures] == [False, False, True]
