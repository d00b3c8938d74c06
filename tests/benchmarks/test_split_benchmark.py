"""The benchmark of embeddings by parts measures what it says."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.split")
    monkeypatch.setattr(bench, "in_own_process", lambda function, *given: function(*given))
    monkeypatch.setattr(bench, "LIMIT", 10**12)  # this process holds what other tests have left
    monkeypatch.setattr(bench, "WAYS", {way: bench.WAYS[way] for way in (bench.BASE, "embed")})
    table = bench.embeddings(0.002, rounds=1)
    assert [cells[0] for cells in table.rows] == [bench.BASE, "embed"]
    assert all(len(cells) == len(table.columns) for cells in table.rows)
