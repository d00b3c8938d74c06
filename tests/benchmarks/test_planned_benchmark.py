"""The benchmark of plans compares what was planned with what was taken."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from evergraph.experiments.plan import Cost


def test_ratios_are_of_plan_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    planned = importlib.import_module("benchmarks.planned")
    forecast, taken = Cost(1.0, 10.0, 9.0, 2e8, 0), Cost(1.0, 20.0, 9.0, 1e8, 0)
    monkeypatch.setattr(planned, "plan_run", lambda *_, **__: SimpleNamespace(seed=forecast))
    monkeypatch.setattr(planned, "cost_of", lambda *_: taken)
    [row] = planned.compared([("synthetic", "tem")], 1.0).rows
    assert row[4] == "0.50x"
    assert row[7] == "2.00x"
