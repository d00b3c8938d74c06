"""The critical-difference diagram: everything at its rank."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from evergraph.evaluation.statistics import nemenyi
from evergraph.reports.comparing import Standing
from evergraph.reports.figures.critical_difference import critical_difference
from evergraph.reports.figures.picture import Picture

METHODS = ("one", "two", "three", "four", "five")


def standing(methods: int, datasets: int) -> Standing:
    scores = np.tile(np.arange(methods, 0, -1.0), (datasets, 1))
    names = tuple(f"{METHODS[i % 5]}{i}" for i in range(methods))
    return Standing("class-il", "local", ("a",) * datasets, names, (), nemenyi(scores))


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep the axes that are drawn into."""
    module = import_module("evergraph.reports.figures.critical_difference")
    kept: list[Any] = []

    def drawn(name: str, title: str, frame: Any, draw: Any) -> Picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(frame.width, frame.height))
        draw(figure, figure.add_axes(frame.box))
        kept.extend([figure, figure.axes[0]])
        return Picture(name, title, "", b"")

    monkeypatch.setattr(module, "drawn", drawn)
    return kept


def test_every_method_hangs_at_its_mean_rank(axes: list[Any]) -> None:
    picture = critical_difference(standing(5, 20))
    assert picture.name == "critical_difference-class-il-local"
    figure, drawn = axes
    names = {text.get_text().split()[0]: text for text in drawn.texts}
    assert {name for name in names if name != "critical"} == {
        f"{m}{i}" for i, m in enumerate(METHODS)
    }
    hung = [line for line in drawn.lines if len(line.get_xdata()) == 3]
    assert sorted(float(line.get_xdata()[0]) for line in hung) == [1, 2, 3, 4, 5]
    for line in hung:  # the end of a line is where its name begins, which tells the rank
        rank, _, edge = line.get_xdata()
        (name,) = [t for t in drawn.texts if f"{rank:.2f}" in t.get_text() and "crit" not in
                   t.get_text()]  # fmt: skip
        assert name.get_position()[1] == line.get_ydata()[2]
        assert (edge < 1) == (rank <= 3)  # the better half at the left
    rows = [text.get_position()[::-1] for text in drawn.texts]
    assert len(set(rows)) == len(rows)
    assert "20 datasets, Friedman p < 0.001" in figure.texts[1].get_text()
    # CD = 2.728 · √(30/120) = 1.364: bars join neighbours, which are not told apart
    thick = [line for line in drawn.lines if line.get_linewidth() == 3]
    ends = [tuple(np.round(line.get_xdata())) for line in thick]
    assert ends == [(1, 2), (2, 3), (3, 4), (4, 5)]
    assert len({line.get_ydata()[0] for line in thick}) == 4
    key = next(line for line in drawn.lines if line.get_marker() == "|")
    assert np.ptp(key.get_xdata()) == pytest.approx(1.364, abs=2e-3)


def test_many_methods_are_drawn() -> None:
    picture = critical_difference(standing(13, 4))
    assert picture.png.startswith(b"\x89PNG")
    assert picture.svg.startswith("<?xml")
