"""What accuracy costs: the lines by hand, and where they are drawn at all."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.reports.figures.frontier import BYTES, SECONDS, frontier, log_span, log_ticks
from evergraph.reports.figures.picture import looks_of
from evergraph.reports.report import write_report
from evergraph.reports.runs import Group, collect, envelope, families, grouped

NAMES = ["finetune", "joint", "ssm", "tem"]


@pytest.fixture
def folder(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    """A family of four, of which the second and the last are no better than cheaper ones."""
    write_run(tmp_path, "tem@1", [0.5], kept=1_000_000)
    write_run(tmp_path, "tem@2", [0.375], kept=2_000_000)
    write_run(tmp_path, "tem@3", [0.75], kept=10_000_000)
    write_run(tmp_path, "tem@4", [0.625], kept=20_000_000)
    write_run(tmp_path, "ssm", [0.5625], kept=1_500_000)
    write_run(tmp_path, "joint", [0.875], kept=0)
    write_run(tmp_path, "finetune", [0.125], kept=0)
    return tmp_path


def group_of(folder: Path) -> Group:
    (group,) = grouped(collect(folder), folder)
    return group


def panels(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], *given: Any) -> list[Any]:
    """Return the axes that a figure is drawn on."""
    seen = []

    def keep(name: str, title: str, frame: Any, draw: Any, *, rows: int = 1) -> None:
        from matplotlib.figure import Figure

        figure = Figure()
        axes = figure.subplots(rows, 1)
        draw(figure, axes)
        seen.extend(axes if rows > 1 else [axes])

    monkeypatch.setattr("evergraph.reports.figures.picture.drawn", keep)
    make(*given)
    return seen


def lines(axes: Any, style: str) -> list[list[tuple[float, float]]]:
    drawn = [line for line in axes.lines if line.get_linestyle() == style]
    return [[(float(x), round(float(y), 6)) for x, y in line.get_xydata()] for line in drawn]


def test_a_line_is_the_best_so_far(folder, monkeypatch):
    seen = panels(monkeypatch, frontier, group_of(folder), looks_of(NAMES), BYTES)
    assert [axes.get_title() for axes in seen] == [
        "rings, class-il, local",
        "rings, class-il, global",
    ]
    for axes in seen:
        (line,) = [points for points in lines(axes, "-") if len(points) > 1]
        assert line == [(1e6, 50.0), (1e7, 75.0), (2e7, 75.0)]
        points = [line for line in axes.lines if len(line.get_xydata()) == 1]
        faces = {float(p.get_ydata()[0]): p.get_markerfacecolor() for p in points}
        assert {y for y, face in faces.items() if face == "white"} == {37.5, 62.5}
        assert set(faces) == {50.0, 37.5, 75.0, 62.5, 56.25}
        assert axes.get_xlim() == (1e5, 5e8)
        # Who keeps nothing is a level, and one far below the families is told.
        assert {points[0][1] for points in lines(axes, ":")} == {87.5, 12.5}
        assert axes.get_ylim()[0] > 12.5  # families fill the panel
        assert [text.get_text() for text in axes.texts] == ["below: finetune 12.5"]


def test_seconds_are_those_of_one_seed(folder, change, monkeypatch):
    for place in range(1, 5):
        run = folder / "rings" / "class-il" / f"tem@{place}"
        change(run, seconds={"embed": 1.0, "train": 4.0**place - 1})  # of two seeds
    seen = panels(monkeypatch, frontier, group_of(folder), looks_of(NAMES), SECONDS)
    (line,) = [points for points in lines(seen[0], "-") if len(points) > 1]
    assert line == [(2.0, 50.0), (32.0, 75.0), (128.0, 75.0)]
    assert lines(seen[0], ":") == []  # all have to learn
    ticks = [text.get_text() for text in seen[1].get_xticklabels()]
    assert ticks == ["1 s", "2 s", "5 s", "10 s", "20 s", "50 s", "100 s", "200 s"]


amounts = st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=5)


@given(amounts=amounts)
def test_every_amount_is_on_the_axis_and_so_are_three_ticks(amounts):
    low, high = log_span([0.0, *amounts])
    assert low < min(amounts) <= max(amounts) < high
    ticks = log_ticks(low, high)
    assert len(ticks) >= 3
    assert all(low <= tick <= high for tick in ticks)


def test_single_runs_alone_fill_the_panel(tmp_path, write_run, monkeypatch):
    for name, accuracy in (("ssm", 0.5625), ("finetune", 0.125)):
        write_run(tmp_path, name, [accuracy], kept=1_500_000)
    for axes in panels(monkeypatch, frontier, group_of(tmp_path), looks_of(NAMES), BYTES):
        low, high = axes.get_ylim()
        assert low < 12.5 < 56.25 < high
        assert len(axes.texts) == 0


@pytest.mark.usefixtures("undrawn")
def test_the_frontier_section_needs_several_runs(tmp_path, write_run):
    write_run(tmp_path, "ssm", [0.5])
    assert 'id="frontier"' not in write_report(collect(tmp_path), tmp_path).read_text("utf-8")
    write_run(tmp_path, "tem", [0.5])
    assert '<section id="frontier">' in write_report(collect(tmp_path), tmp_path).read_text("utf-8")
    for price in ("bytes", "seconds"):
        assert (tmp_path / f"report/figures/frontier-{price}-rings-class-il.png").exists()


RUNS = [(50.0, 0.6), (400.0, 0.9), (100.0, 0.55), (200.0, 0.9)]


def test_by_hand():
    assert envelope(RUNS) == [(50.0, 0.6), (200.0, 0.9)]  # 100 is worse than 50, 400 no better
    assert envelope([]) == []


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=10)


@given(points=points, budget=st.integers(-1, 7))
def test_the_envelope_rises_and_says_what_all_points_say(points, budget):
    rising = envelope(points)
    assert set(rising) <= set(points)
    for (cost, value), (dearer, better) in pairwise(rising):
        assert cost < dearer
        assert value < better
    best = [
        max((v for cost, v in each if cost <= budget), default=None) for each in (rising, points)
    ]
    assert best[0] == best[1]


def test_runs_of_a_family_share_the_name_before_the_sign(tmp_path, write_run):
    for name, accuracy in (("tem@budget=50", 0.5), ("tem@budget=400", 0.75), ("ssm", 0.625)):
        write_run(tmp_path, name, [accuracy])
    (group,) = grouped(collect(tmp_path), tmp_path)
    named = {name: [entry.name for entry in runs] for name, runs in families(group).items()}
    assert named == {"tem": ["tem@budget=400", "tem@budget=50"], "ssm": ["ssm"]}
