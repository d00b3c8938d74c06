"""What answers are measured by, of classes and of targets, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.evaluation import (
    average_precision,
    balanced_accuracy,
    macro_f1,
    mean_absolute_error,
    micro_f1,
    plain_accuracy,
    r2,
)


def both(predicted: list[int], labels: list[int]) -> tuple[float, float]:
    given = torch.tensor(predicted), torch.tensor(labels)
    return plain_accuracy(*given), balanced_accuracy(*given)


def test_by_hand() -> None:
    # class 5: 3 of 4 right; class 9: 0 of 1; class 2: 1 of 1
    plain, balanced = both([5, 5, 5, 9, 5, 2], [5, 5, 5, 5, 9, 2])
    assert plain == pytest.approx(4 / 6)
    assert balanced == pytest.approx((3 / 4 + 0 + 1) / 3)
    assert both([1, 0, 2], [1, 0, 2]) == (1.0, 1.0)
    assert both([0, 1, 0], [1, 0, 2]) == (0.0, 0.0)
    # A large class outweighs a small one in plain accuracy only.
    assert both([0] * 10, [0] * 9 + [1]) == pytest.approx((0.9, 0.5))
    # A class that is only predicted does not count.
    assert both([7, 0], [0, 0])[1] == pytest.approx(0.5)


@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_equal_to_counting(pairs: list[tuple[int, int]]) -> None:
    plain, balanced = both(*(list(side) for side in zip(*pairs, strict=True)))
    recalls = []
    for label in {label for _, label in pairs}:
        answers = [predicted == label for predicted, truth in pairs if truth == label]
        recalls.append(sum(answers) / len(answers))
    assert plain == pytest.approx(sum(p == y for p, y in pairs) / len(pairs))
    assert balanced == pytest.approx(sum(recalls) / len(recalls))


NAN = float("nan")
GIVEN = torch.tensor([[0.9, 0.6, 0.1], [0.8, 0.2, 0.4], [0.3, 0.7, 0.2]])
RIGHT = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, NAN]])


def test_f1_by_hand() -> None:
    # label 0: 2 hits, 1 missed; label 1: 1 hit, 1 too many, 1 missed; label 2: nothing at all
    assert micro_f1(GIVEN, RIGHT) == pytest.approx(2 * 3 / (2 * 3 + 3))
    assert macro_f1(GIVEN, RIGHT) == pytest.approx((4 / 5 + 2 / 4) / 2)
    # A value that is not known counts for nothing.
    wrong = RIGHT.clone()
    wrong[2, 0] = NAN  # the one that was missed
    assert micro_f1(GIVEN, wrong) == pytest.approx(2 * 3 / (2 * 3 + 2))
    # Nothing to find and nothing given is right.
    nothing = torch.zeros(2, 2)
    assert micro_f1(nothing, nothing) == macro_f1(nothing, nothing) == 1.0
    assert math.isnan(average_precision(nothing, nothing))
    # Micro f1 of one label each is the accuracy.
    given = torch.eye(3)[[0, 1, 1, 2]]
    right = torch.eye(3)[[0, 1, 2, 2]]
    assert micro_f1(given, right) == pytest.approx(3 / 4)


def test_average_precision_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    right = (torch.rand(40, 3, generator=generator) > 0.6).float()
    given = torch.randint(6, (40, 3), generator=generator) / 6  # many ties
    assert average_precision(given, right) == pytest.approx(
        metrics.average_precision_score(right.numpy(), given.numpy(), average="macro")
    )


def test_numbers_by_hand() -> None:
    right = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, NAN]])
    given = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 9.0]])
    assert r2(given, right) == pytest.approx(((1 - 9 / 14) + 1) / 2)
    assert r2(given + torch.tensor([0.0, 1.0]), right) == pytest.approx((1 - 9 / 14) / 2)
    # Mean absolute error by hand.
    right = torch.tensor([[1.0, NAN], [2.0, 4.0]])
    given = torch.tensor([[1.5, 9.0], [2.0, 3.0]])
    assert mean_absolute_error(given, right) == pytest.approx((0.5 + 0 + 1) / 3)
