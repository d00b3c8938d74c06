"""What notebooks show of results, graphs and live learners, whatever things are called."""

import sys
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import evergraph as eg
from evergraph.core.errors import ConfigurationError
from evergraph.datasets import NamedGraph
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.result import SeedResult
from evergraph.memory import MemoryUsage

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Collects tags, and refuses a page whose tags do not close each other."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.met: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.met.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.met.append(tag)


@pytest.fixture(scope="module")
def result() -> eg.RunResult:
    graph = eg.load("synthetic", nodes=120, classes=6, features=8, noise=0.2)
    return eg.run(graph, "finetune", epochs=2, device="cpu", progress=False)


def test_names_of_the_user_are_escaped():
    edges = torch.tensor([[0], [1]])
    graph = eg.Graph.from_edges(edges, features=torch.eye(2), labels=torch.tensor([0, 1]))
    named = NamedGraph(graph, ids=[EVIL, "b"], classes=(EVIL, "b"))
    model = eg.ContinualNodeClassifier(width=8, head="analytic")
    model.partial_fit([EVIL, "b"], torch.eye(2), [EVIL, "b"], [(EVIL, "b")])
    model.label(["b"], [EVIL])
    model.partial_fit(["c"], torch.ones(1, 2), [EVIL])
    shown = [named, model, model.learner_, model.applied_, model.status(), model.explain("c")]
    for each in shown:
        assert "script" not in Tags(each._repr_html_()).met
    assert "&lt;script&gt;" in model.explain("c")._repr_html_()


def test_a_live_learner_shows_how_good_it_has_been():
    model = eg.ContinualNodeClassifier(width=8, head="analytic")
    model.partial_fit(["a", "b"], torch.eye(2), ["x", "y"])
    model.partial_fit(["c"], torch.tensor([[1.0, 0.1]]), ["x"])
    page = model._repr_html_()
    assert "accuracy before labels came</th><td>1.000 of 1<" in page
    Tags(page)
    assert repr(model.learner_) == (
        "OnlineLearner(nodes=3, edges=0, classes=2, labelled=3, deltas=2)"
    )


def test_a_folder_shows_its_learner_until_it_is_closed(tmp_path):
    with eg.LearnerFolder.open(tmp_path / "<b>", make=eg.OnlineLearner) as folder:
        page = folder._repr_html_()
        assert "&lt;b&gt;</td>" in page
        assert "OnlineLearner" in page
    assert "OnlineLearner" not in folder._repr_html_()
    assert repr(folder).endswith("closed=True)")


def row(*accuracies: float) -> dict[str, dict[str, list[float]]]:
    """Balanced and plain alike, global a tenth lower."""
    low = [value - 0.1 for value in accuracies]
    return {t: {"balanced": v, "plain": v} for t, v in (("local", [*accuracies]), ("global", low))}


def seed(number: int, *rows: Any) -> SeedResult:
    seconds = {"embed": 0.0, "train": 0.0, "evaluate": 0.0}
    reports = [TaskReport(index, row, seconds, {}) for index, row in enumerate(rows)]
    return SeedResult(number, reports, MemoryUsage())


@pytest.fixture
def learned() -> eg.RunResult:
    seeds = [seed(0, row(1.0), row(0.5, 0.9)), seed(1, row(0.8), row(0.7, 0.5))]
    return eg.RunResult(eg.RunConfig.of({"method": "tem"}), seeds, 1.0, None, {}, {}, {})


def test_a_frame_has_a_row_an_observation(learned):
    pytest.importorskip("pandas")
    frame = learned.to_frame()
    assert len(frame) == 2 * 2 * 2 * 3  # seeds, testings, averages, entries of the triangle
    columns = "dataset method setting seed testing average after task accuracy"
    assert [*frame.columns] == columns.split()
    first = ["wordnet", "tem", "class-il", 0, "local", "balanced", 0, 0, 1.0]
    assert frame.iloc[0].tolist() == first
    local = frame[(frame.testing == "local") & (frame.average == "plain") & (frame.seed == 1)]
    assert local[["after", "task", "accuracy"]].to_numpy().tolist() == [
        [0, 0, 0.8],
        [1, 0, 0.7],
        [1, 1, 0.5],
    ]
    last = frame[(frame.after == frame.after.max()) & (frame.average == "balanced")]
    means = last.groupby("testing").accuracy.mean()
    assert means["local"] == pytest.approx(learned.average_accuracy()) == pytest.approx(0.65)
    assert means["global"] == pytest.approx(0.55)


def test_a_plot_is_the_learning_curve(learned):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = learned.plot()
    drawn = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert drawn["tem, local"] == pytest.approx([90.0, 65.0])  # means of 100, 80 and of 70, 60
    assert drawn["tem, global"] == pytest.approx([80.0, 55.0])
    assert axes.get_title() == "wordnet, class-il"
    assert learned.plot(axes=axes, average="plain") is axes
    assert len({line.get_color() for line in axes.lines if line.get_label().startswith("tem")}) == 2
    matplotlib.pyplot.close(axes.figure)


def test_a_plot_needs_matplotlib_and_an_average_that_is_there(learned, monkeypatch):
    with pytest.raises(ConfigurationError, match="unknown average 'mean'"):
        learned.plot(average="mean")
    monkeypatch.setattr("evergraph.experiments.result.installed", lambda package: False)
    with pytest.raises(ConfigurationError, match="pandas, which is missing: pip install pandas"):
        learned.to_frame()
    monkeypatch.setattr("evergraph.core.packages.find_spec", lambda package: None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"RunResult\.plot\(\) needs .*evergraph\[report"):
        learned.plot()
