"""A result as a table and as a picture."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import evergraph as eg
from evergraph.core.errors import ConfigurationError
from evergraph.experiments.result import SeedResult


def row(*accuracies: float) -> dict[str, dict[str, list[float]]]:
    """Balanced and plain alike, global a tenth lower."""
    low = [value - 0.1 for value in accuracies]
    return {t: {"balanced": v, "plain": v} for t, v in (("local", [*accuracies]), ("global", low))}


def seed(number: int, *rows: Any) -> SeedResult:
    seconds = {"embed": 0.0, "train": 0.0, "evaluate": 0.0}
    return SeedResult(number, list(rows), seconds, None, floats=0, bytes=0)


@pytest.fixture
def result() -> eg.RunResult:
    seeds = [seed(0, row(1.0), row(0.5, 0.9)), seed(1, row(0.8), row(0.7, 0.5))]
    return eg.RunResult(eg.RunConfig.of({"method": "tem"}), seeds, 1.0, None, {}, {}, {})


def test_a_frame_has_a_row_an_observation(result: eg.RunResult) -> None:
    pytest.importorskip("pandas")
    frame = result.to_frame()
    assert len(frame) == 2 * 2 * 2 * 3  # seeds, testings, averages, entries of the triangle
    assert [*frame.columns] == [
        "dataset", "method", "setting", "seed", "testing", "average", "after", "task", "accuracy"
    ]  # fmt: skip
    assert frame.iloc[0].tolist() == [
        "wordnet", "tem", "class-il", 0, "local", "balanced", 1, 0, 1.0
    ]  # fmt: skip
    local = frame[(frame.testing == "local") & (frame.average == "plain") & (frame.seed == 1)]
    assert local[["after", "task", "accuracy"]].to_numpy().tolist() == [
        [1, 0, 0.8], [2, 0, 0.7], [2, 1, 0.5]
    ]  # fmt: skip
    last = frame[(frame.after == frame.after.max()) & (frame.average == "balanced")]
    means = last.groupby("testing").accuracy.mean()
    assert means["local"] == pytest.approx(result.average_accuracy()) == pytest.approx(0.65)
    assert means["global"] == pytest.approx(0.55)


def test_a_plot_is_the_learning_curve(result: eg.RunResult) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = result.plot()
    drawn = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert drawn["tem, local"] == pytest.approx([90.0, 65.0])  # means of 100, 80 and of 70, 60
    assert drawn["tem, global"] == pytest.approx([80.0, 55.0])
    assert axes.get_title() == "wordnet, class-il"
    assert result.plot(axes=axes, average="plain") is axes
    assert len({line.get_color() for line in axes.lines if line.get_label().startswith("tem")}) == 2
    matplotlib.pyplot.close(axes.figure)


def test_a_plot_needs_matplotlib_and_an_average_that_is_there(
    result: eg.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="unknown average 'mean'"):
        result.plot(average="mean")
    monkeypatch.setattr("evergraph.experiments.result.installed", lambda package: False)
    with pytest.raises(ConfigurationError, match="pandas, which is missing: pip install pandas"):
        result.to_frame()
    monkeypatch.setattr("evergraph.core.extras.find_spec", lambda package: None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"RunResult\.plot\(\) needs .*evergraph\[report"):
        result.plot()
