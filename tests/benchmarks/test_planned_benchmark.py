"""The benchmark of plans compares what was planned with what was taken."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from evergraph.experiments.planning.constants import read_constants

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("EVERGRAPH_CACHE", str(tmp_path))
    bench = importlib.import_module("benchmarks.planned")
    monkeypatch.setattr(bench, "in_own_process", lambda *_, **__: read_constants(tmp_path))
    return bench


def test_ratios_are_of_plan_to_run(planned: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    case = planned.Case(0.002, width=16)
    monkeypatch.setattr(planned, "load", lambda *_, **__: None)  # known before it is drawn
    way = planned.planned(case)
    taken = planned.Taken(wall=2 * way.seconds, processor=1.0, peak=int(way.memory))
    monkeypatch.setattr(planned, "ran", lambda case: taken)
    table = planned.compared((case,))
    [row] = table.rows
    told = dict(zip(("run", *table.columns[1:]), row, strict=True))
    assert row[4] == "0.50x"
    assert told["ratio"] == "1.00x"  # the last of that name, memory
    assert len(row) == len(table.columns)


@pytest.mark.slow
def test_a_run_is_measured_in_a_process_of_its_own(planned: ModuleType) -> None:
    taken = planned.ran(planned.Case(0.002, width=16))
    assert 1.5e8 < taken.peak < 2e9
    assert taken.processor > 0
    assert taken.wall > 0
