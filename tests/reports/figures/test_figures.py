"""Figures: drawn for any shape of results, and fit to stand in one page."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from evergraph.evaluation.statistics import nemenyi
from evergraph.reports.comparing import Standing
from evergraph.reports.figures import Picture, critical_difference, looks_of, mean_matrix
from evergraph.reports.runs import collect, grouped


def test_every_group_and_every_run_is_drawn(all_figures):
    assert {kind: len(pictures) for kind, pictures in all_figures.items()} == {
        "curves": 3,
        "matrices": 5,
        "ranks": 0,
    }
    pictures = [picture for kind in all_figures.values() for picture in kind]
    assert len({picture.name for picture in pictures}) == len(pictures)
    for picture in pictures:
        assert picture.png.startswith(b"\x89PNG")
        assert picture.svg.startswith("<?xml")


def test_looks_and_matrices(bench):
    entry = grouped(collect(bench), bench)[1].entries[1]
    np.testing.assert_allclose(mean_matrix(entry, "local"), [[50, np.nan], [50, 25]])
    # Many methods all look different.
    looks = looks_of([str(i) for i in range(56)])
    assert len(set(looks.values())) == 56


METHODS = ("one", "two", "three", "four", "five")


def standing(methods: int, datasets: int) -> Standing:
    scores = np.tile(np.arange(methods, 0, -1.0), (datasets, 1))
    names = tuple(f"{METHODS[i % 5]}{i}" for i in range(methods))
    return Standing("class-il", "local", ("a",) * datasets, names, (), nemenyi(scores))


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep the axes that are drawn into."""
    module = import_module("evergraph.reports.figures")
    kept = []

    def drawn(name: str, title: str, size: Any, draw: Any) -> Picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=size)
        draw(figure, figure.subplots())
        kept.extend([figure, figure.axes[0]])
        return Picture(name, title, "", b"")

    monkeypatch.setattr(module, "drawn", drawn)
    return kept


def test_methods_have_their_mean_ranks_with_half_the_critical_difference_to_each_side(axes):
    picture = critical_difference(standing(5, 20))
    assert picture.name == "critical_difference-class-il-local"
    figure, drawn = axes
    assert [text.get_text() for text in drawn.get_yticklabels()] == [
        f"{m}{i}" for i, m in enumerate(METHODS)
    ]
    assert drawn.get_ylim() == (4.5, -0.5)  # the best at the top
    (found,) = drawn.containers
    points, _, (bars,) = found
    assert points.get_xdata().tolist() == [1, 2, 3, 4, 5]
    # CD = 2.728 · √(30/120) = 1.364: neighbours' bars overlap, others' do not
    ends = np.array([bar[:, 0] for bar in bars.get_segments()])
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 1.364, atol=2e-3)
    assert (ends[1:, 0] < ends[:-1, 1]).all()
    assert (ends[2:, 0] > ends[:-2, 1]).all()
    assert "Friedman p < 0.001 over 20 datasets: bars that overlap" in figure.texts[1].get_text()


def test_many_methods_are_drawn():
    picture = critical_difference(standing(13, 4))
    assert picture.png.startswith(b"\x89PNG")
    assert picture.svg.startswith("<?xml")
