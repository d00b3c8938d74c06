"""The benchmark of row pointers measures what it says it does."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TINY = (200, 1_000)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("benchmarks.pointers")
    monkeypatch.setattr(module, "in_own_process", lambda function, *given: function(*given))
    return module


@pytest.mark.slow
def test_both_kinds_are_measured(bench: ModuleType) -> None:
    before = bench.csr.MOST_INT32
    table = bench.cost_table(TINY, rounds=1)
    assert [row[0] for row in table.rows] == [*bench.WORK, bench.BUILDING]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert before == bench.csr.MOST_INT32
    with bench.counting("64 bits"):
        assert bench.built(TINY, bench.pairs_of(TINY)).indptr.dtype == torch.int64


def test_kinds_that_disagree_are_refused(bench: ModuleType) -> None:
    with pytest.raises(ValueError, match="two hops differs between 32 bits and 64 bits"):
        bench.check("two hops", {"32 bits": torch.zeros(1), "64 bits": torch.ones(1)})


def test_a_commit_that_is_not_there_is_said(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "BEFORE", "no-such-commit")
    assert "skipped" in bench.before_table(TINY, rounds=1, turns=1).notes[0]


def test_the_library_in_a_folder_is_measured(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench, "with_source", lambda folder, size, rounds: bench.timed(*size, rounds)
    )
    try:
        table = bench.before_table(TINY, rounds=1, turns=1)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    assert table.rows == [] or [row[0] for row in table.rows] == [*bench.WORK, bench.BUILDING]
