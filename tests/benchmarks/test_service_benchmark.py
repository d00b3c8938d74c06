"""The service's benchmark measures what it says it does."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed")


def test_every_stretch_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    service = importlib.import_module("benchmarks.service")
    size = service.Size(nodes=200, idle=0.2, loaded=0.4, rush=0.2)
    rows = service.measure(size, tmp_path / "learner")
    assert len(rows) == 5
    assert all(row.asked.seconds and not row.asked.wrong for row in rows)
    assert [bool(row.taken) for row in rows] == [False, True, True, False, True]
    cells = service.table(rows, size).rows
    assert [cells[0][3], cells[3][3]] == ["1.00x", "1.00x"]


def test_a_delta_and_everything_again_end_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    retraining = importlib.import_module("benchmarks.retraining")
    measure = importlib.import_module("benchmarks.measure")
    [table] = retraining.main(measure.Options(quick=True))
    ours, again, _ = (row[-1] for row in table.rows)
    assert ours == again
