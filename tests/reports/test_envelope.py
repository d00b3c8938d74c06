"""The most that can be had for a price, by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.reports import collect
from evergraph.reports.report import tables_of
from evergraph.reports.runs import grouped
from evergraph.reports.tables.record import csv_text
from evergraph.reports.units import best_within, envelope, families

RUNS = [(50.0, 0.6), (400.0, 0.9), (100.0, 0.55), (200.0, 0.9)]


def test_by_hand() -> None:
    assert envelope(RUNS) == [(50.0, 0.6), (200.0, 0.9)]  # 100 is worse than 50, 400 no better
    assert [best_within(RUNS, b) for b in (49, 50, 199, 200, 999)] == [None, 0.6, 0.6, 0.9, 0.9]
    assert envelope([]) == []
    assert best_within([], 1) is None


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=10)


@given(points=points, budget=st.integers(-1, 7))
def test_the_envelope_rises_and_says_what_all_points_say(
    points: list[tuple[float, float]], budget: int
) -> None:
    rising = envelope(points)
    assert set(rising) <= set(points)
    for (cost, value), (dearer, better) in pairwise(rising):
        assert cost < dearer
        assert value < better
    assert best_within(rising, budget) == best_within(points, budget)


@pytest.fixture
def folder(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    write_run(tmp_path, "tem@budget=50", [0.5], kept=900_000)
    write_run(tmp_path, "tem@budget=400", [0.75], kept=9_000_000)
    write_run(tmp_path, "ssm", [0.625], kept=1_000_001)
    return tmp_path


def test_the_table_by_hand(folder: Path, change: Callable[..., Path]) -> None:
    # One seed of two learns in half of these: 1, 9 and 10.5 seconds.
    runs = folder / "rings" / "class-il"
    for name, train in (("tem@budget=50", 2.0), ("tem@budget=400", 18.0), ("ssm", 21.0)):
        change(runs / name, seconds={"embed": 0.0, "train": train})
    (group,) = grouped(collect(folder), folder)
    named = {name: [entry.name for entry in runs] for name, runs in families(group).items()}
    assert named == {"tem": ["tem@budget=400", "tem@budget=50"], "ssm": ["ssm"]}
    table = tables_of([group])["budgets"]
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(csv_text(table)))}
    limits = ("1 MB", "10 MB", "100 MB", "fastest", "10 x fastest")
    for testing in ("local", "global"):
        tem, ssm = ([rows[n][f"{lim} {testing}"] for lim in limits] for n in ("tem", "ssm"))
        assert tem == ["0.5", "0.75", "0.75", "0.5", "0.75"]
        assert ssm == ["", "0.625", "0.625", "", ""]
