"""Pictures of a learner show what it knows and what it predicted."""

import pytest
import torch

from evergraph.core.errors import NothingLearnedError
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.online.delta import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.plotting import learner_history

pytest.importorskip("matplotlib")
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
