"""Several labels a node, and numbers: the classifier answers in kind."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.classifier import ContinualNodeClassifier
from pyg import pyg_data

IDS = ["a", "b", "c", "d"]
ROWS = np.eye(4, dtype=np.float32)
EDGES = [("a", "b"), ("c", "d")]
LABELS = [["x", "y"], ["x", "y"], ["z"], None]
NUMBERS = [1.0, 1.0, 5.0, None]


def model(kind: Any, **parameters: Any) -> ContinualNodeClassifier:
    return ContinualNodeClassifier(width=48, targets=kind, **parameters)


def test_labels_in_and_out():
    found = model("labels").partial_fit(IDS, ROWS, LABELS, EDGES)
    assert found.predict(["a", "c", "d"]) == [["x", "y"], ["z"], ["z"]]
    assert found.classes_.tolist() == ["x", "y", "z"]
    shares = found.predict_proba(["a", "d"])
    assert shares.shape == (2, 3)
    assert (shares > 0.5).tolist() == [[True, True, False], [False, False, True]]
    # of three labels x and y are found, w is not, and z is given where there is none
    assert found.score(["a", "d"], [["x", "w", "y"], []]) == pytest.approx(4 / (4 + 1 + 1))
    late = found.label(["c", "d"], [["w"], ["w"]])
    assert late.predict(["d"]) == [["w"]]
    assert late.forget(["d"]).status().nodes == 3


def test_numbers_in_and_out():
    """Of four graphs that are alike: what is said of a node is what the others show."""
    found = model("numbers")
    for k in "234":
        edges = [(one + k, other + k) for one, other in EDGES]
        found.partial_fit([name + k for name in IDS], ROWS, NUMBERS, edges)
    found.partial_fit(IDS, ROWS, NUMBERS, EDGES)
    predicted = found.predict(IDS)
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(predicted, [1, 1, 5, predicted[3]], atol=0.1)
    assert predicted[3] > 3  # its neighbour has 5
    right = np.array([1.0, 2.0, 6.0])
    short = 1 - ((predicted[:3] - right) ** 2).sum() / ((right - 3) ** 2).sum()
    assert found.score(["a", "b", "c"], right) == pytest.approx(short, rel=1e-6)
    turned = [name + k for name in "cd" for k in ("", "2", "3", "4")]
    assert found.label(turned, [-4.0] * 8).predict(["d"])[0] < 0
    assert found.classes_.tolist() == []


def test_answers_have_the_type_of_the_question():
    asked = pd.Series(["a", "c"], index=["first", "second"])
    found = model("labels").partial_fit(IDS, ROWS, pd.Series(LABELS), EDGES)
    assert found.predict(asked).to_dict() == {"first": ["x", "y"], "second": ["z"]}
    assert list(found.predict_proba(asked).columns) == ["x", "y", "z"]
    numbers = model("numbers").partial_fit(torch.arange(4), ROWS, pd.Series(NUMBERS))
    assert isinstance(numbers.predict(torch.tensor([0, 2])), torch.Tensor)
    assert numbers.predict(pd.Index([0, 2])).index.tolist() == [0, 2]


def test_a_data_object_has_them_in_y():
    rows = torch.tensor([[0, 2], [1, 3]])
    y = torch.tensor([[1.0, 0], [1, 0], [0, 1], [torch.nan, torch.nan]])
    data = pyg_data(x=torch.eye(4), edge_index=rows, y=y)
    assert model("labels").partial_fit(data).predict([0, 2, 3]) == [["t0"], ["t1"], ["t1"]]
    data.y = torch.tensor([1.0, 1.0, 5.0, torch.nan])
    found = model("numbers").partial_fit(data, ids=IDS)
    same = model("numbers").partial_fit(IDS, ROWS, NUMBERS, EDGES)
    np.testing.assert_array_equal(found.predict(IDS), same.predict(IDS))


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("labels", np.eye(4, dtype=int) * 2, "expected a list a node, or 0 or 1"),
        ("labels", [["x"]], "as many as nodes, not 1 for 4"),
        ("numbers", np.ones((4, 2)), "expected one value a node"),
    ],
)
def test_what_a_kind_is_not(kind, labels, message):
    found = model(kind)
    with pytest.raises(DataError, match=message):
        found.partial_fit(IDS, ROWS, labels)
    assert found.status().nodes == 0


def test_what_does_not_apply_is_said():
    numbers = model("numbers").partial_fit(IDS, ROWS, NUMBERS)
    with pytest.raises(ConfigurationError, match="predict_proba needs classes or labels"):
        numbers.predict_proba(["a"])
    with pytest.raises(ConfigurationError, match="balanced is for classes and labels"):
        numbers.score(["a"], [1.0], balanced=True)
    table = pd.DataFrame({"id": ["e"], "label": ["x"], "f": [1.0]})
    with pytest.raises(DataError, match="'label', but the model was made with targets='numbers'"):
        model("numbers").partial_fit(table)
    with pytest.raises(DataError, match="label of node 'b' is missing"):
        numbers.label(["a", "b"], [1.0, None])
    with pytest.raises(ConfigurationError, match="targets"):
        model("labels", head="analytic").partial_fit(IDS, ROWS, LABELS)
    with pytest.raises(ConfigurationError, match="targets"):
        model("number").partial_fit(IDS, ROWS, NUMBERS)
    labels = torch.tensor([0, 1, 0, 1])
    with pytest.raises(DataError):
        model("labels").partial_fit(pyg_data(x=torch.eye(4), y=labels, edge_index=None))
