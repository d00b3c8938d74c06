"""Pictures of a learner show what it knows and what it predicted."""

from typing import Any

import pytest
import torch

from evergraph.core.errors import NothingLearnedError
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.online.delta import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.monitor import Alarm, Point
from evergraph.online.plotting import LearnerHistory, learner_history, pictures_of

Figure = pytest.importorskip("matplotlib.figure").Figure
AROUND = {"x": [1.0, 0.0], "y": [0.0, 1.0]}


def learned(*rounds: str) -> OnlineLearner:
    """Return a learner that was given some nodes a delta, named and placed by their class."""
    learner = OnlineLearner(head=FusedHead(width=32))
    for number, classes in enumerate(rounds):
        learner.apply(
            Delta(
                nodes=tuple(f"{number}-{i}" for i in range(len(classes))),
                features=torch.tensor([AROUND[name] for name in classes]),
                labels=tuple(classes),
            )
        )
    return learner


def test_a_history_counts_classes_and_what_was_predicted_before_it_was_learned():
    history = learner_history(learned("xxxy", "xyy"))
    assert history.class_sizes == {"x": 4, "y": 3}
    assert history.latest_sizes == {"x": 1, "y": 2}  # of the second delta: the first was learned
    assert (history.recorded, history.confusion) == (["y", "x"], [[2, 0], [0, 1]])
    assert [(point["seq"], point["asked"], point["right"]) for point in history.curve] == [
        (2, 3, 3)
    ]


def test_several_labels_of_a_node_count_each():
    model = ContinualNodeClassifier(targets="labels", width=32)
    model.partial_fit(["a", "b", "c"], torch.eye(3), [["art", "law"], ["law"], []])
    assert learner_history(model.learner_).class_sizes == {"law": 2, "art": 1}


def curve(*points: tuple[int, int, float]) -> list[Point]:
    """Points of as many deltas: nodes, and how many labels were predicted, and how many right."""
    return [
        Point(seq=seq, nodes=nodes, classes=seq, asked=asked, right=right)
        for seq, (nodes, asked, right) in enumerate(points, start=1)
    ]


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    """Axes of every picture of a history that was made up, by title."""
    history = LearnerHistory(
        metric="accuracy",
        shares=True,
        curve=curve((4, 0, 0), (9, 60, 30), (12, 40, 30), (15, 50, 20)),
        class_sizes={
            "a name of 18 signs": 6,
            "a name of nineteen ": 4,
            **dict.fromkeys(range(12), 1),
        },
        latest_sizes={"a name of nineteen ": 3, "unknown": 1},
        recorded=["a", "b"],
        confusion=[[6, 2], [0, 0]],
        alarms=[Alarm(seq=3, message="worse", value=0.4, expected=0.6)],
    )
    pictures = {}
    for title, draw in pictures_of(history).items():
        pictures[title] = Figure().subplots()
        draw(pictures[title])
    return pictures


def test_accuracy_is_drawn_in_windows_of_a_hundred_and_over_all(drawn):
    axes = drawn["Predictions before their labels came"]
    newest, overall, alarm = axes.get_lines()
    assert newest.get_xydata().tolist() == [[3, 60], [4, 40]]
    assert overall.get_xydata()[1:].tolist() == [[2, 50], [3, 60], [4, pytest.approx(160 / 3)]]
    assert overall.get_ydata()[0] is None  # nothing was predicted yet
    assert list(alarm.get_xdata()) == [3, 3]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["since the point before", "all so far", "alarm"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("deltas", "accuracy (%)")
    assert axes.get_ylim() == (-2, 102)
    assert all(tick.is_integer() for tick in axes.get_xticks())  # there is no half a delta


def test_classes_are_drawn_with_how_many_are_left_out(drawn):
    """Twelve of them, the most frequent on top, with names that are cut to eighteen characters."""
    axes = drawn["Classes"]
    assert [bar.get_width() for bar in axes.patches] == [6, 4] + [1] * 10
    assert axes.get_xlabel() == "labelled nodes (2 smaller classes not shown)"
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:3] == ["a name of 18 signs", "a name of ninetee…", "0"]
    bottom, top = axes.get_ylim()
    assert bottom > 11 > 0 > top


def test_drift_is_drawn_as_shares_of_all_and_of_the_latest(drawn):
    axes = drawn["Drift of the classes"]
    of_all, latest = axes.get_lines()
    assert of_all.get_xdata()[:3] == pytest.approx([100 * 6 / 22, 100 * 4 / 22, 100 / 22])
    assert latest.get_xdata()[:3].tolist() == [0, 75, 0]
    assert [*of_all.get_ydata()] == [*latest.get_ydata()] == [*range(12)]
    assert of_all.get_color() != latest.get_color()
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["of all labelled nodes", "of the latest labels"]
    assert (axes.get_xlabel(), axes.get_xlim()[0]) == ("share (%)", 0)


def test_a_confusion_is_drawn_as_shares_of_its_rows_with_counts_written(drawn):
    axes = drawn["Confusion of the latest predictions"]
    (image,) = axes.images
    assert image.get_array().tolist() == [[75, 25], [0, 0]]
    assert image.get_clim() == (0, 100)
    few, many = (sum(image.cmap(share)[:3]) for share in (0.0, 1.0))
    assert few > many  # on which the counts are black, and white
    texts = {text.get_position(): (text.get_text(), text.get_color()) for text in axes.texts}
    assert texts == {(0, 0): ("6", "white"), (1, 0): ("2", "black")}  # readable on either ground
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == ["a", "b"]


def test_a_model_draws_what_there_is_to_draw():
    model = ContinualNodeClassifier(width=32)
    with pytest.raises(NothingLearnedError, match="label some nodes first"):
        model.plot()
    model.partial_fit(["a", "b"], torch.eye(2), ["x", "y"])
    titles = [axes.get_title(loc="left") for axes in model.plot().axes]
    assert titles == ["Classes", ""]  # nothing was predicted yet
    model.partial_fit(["c"], torch.eye(2)[:1], ["x"])
    drawn = {axes.get_title(loc="left"): axes for axes in model.plot().axes}
    assert "Drift of the classes" in drawn
    confusion, growth = drawn["Confusion of the latest predictions"], drawn["Growth"]
    assert (confusion.get_xlabel(), confusion.get_ylabel()) == ("predicted", "true class")
    assert not any(line.get_visible() for line in confusion.get_xgridlines())
    (classes,) = [axes for axes in growth.figure.axes if axes.get_ylabel() == "classes"]
    assert growth.get_ylim()[0] == classes.get_ylim()[0] == 0  # both count from nothing


def test_numbers_have_a_curve_of_errors_and_no_classes():
    model = ContinualNodeClassifier(targets="numbers", width=32)
    model.partial_fit(["a", "b"], torch.eye(2), [1.0, 2.0])
    model.partial_fit(["c"], torch.eye(2)[:1], [1.5])
    labelled = [axes.get_ylabel() for axes in model.plot().axes]
    assert labelled == ["mean absolute error", "nodes"]
