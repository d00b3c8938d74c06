"""The service's benchmark measures what it says it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed")


@pytest.mark.slow
def test_every_stretch_is_answered(load: Any, tmp_path: Path) -> None:
    service = load("service")
    size = service.Size(nodes=200, idle=0.2, loaded=1.0, rush=0.3)
    rows = service.measure(size, tmp_path / "learner")
    assert len(rows) == 5
    assert all(row.asked["answers"] and row.cpu and not row.asked["wrong"] for row in rows)
    assert [bool(row.taken) for row in rows] == [False, True, False, True, False]
    assert any(row.lags for row in rows)
    cells = service.table(rows, size).rows
    assert [cells[place][5] for place in (0, 2, 4)] == ["1.00x"] * 3


@pytest.mark.slow
def test_a_delta_and_everything_again_end_alike(load: Any) -> None:
    retraining = load("retraining")
    measure = load("measure")
    [table] = retraining.main(measure.Options(quick=True))
    ours, again, _ = (row[-1] for row in table.rows)
    assert ours == again
