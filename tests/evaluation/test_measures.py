"""What answers are measured by, of classes and of targets, by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.evaluation import (
    anytime_accuracy,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
    average_forgetting_curve,
    average_precision,
    balanced_accuracy,
    macro_f1,
    mean_absolute_error,
    micro_f1,
    plain_accuracy,
    r2,
)
from evergraph.evaluation.evaluator import matrix_of


def both(predicted: list[int], labels: list[int]) -> tuple[float, float]:
    given = torch.tensor(predicted), torch.tensor(labels)
    return plain_accuracy(*given), balanced_accuracy(*given)


def test_by_hand():
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
def test_equal_to_counting(pairs):
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


def test_f1_by_hand():
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


def test_average_precision_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    right = (torch.rand(40, 3, generator=generator) > 0.6).float()
    given = torch.randint(6, (40, 3), generator=generator) / 6  # many ties
    assert average_precision(given, right) == pytest.approx(
        metrics.average_precision_score(right.numpy(), given.numpy(), average="macro")
    )


def test_numbers_by_hand():
    right = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, NAN]])
    given = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 9.0]])
    assert r2(given, right) == pytest.approx(((1 - 9 / 14) + 1) / 2)
    assert r2(given + torch.tensor([0.0, 1.0]), right) == pytest.approx((1 - 9 / 14) / 2)
    # Mean absolute error by hand.
    right = torch.tensor([[1.0, NAN], [2.0, 4.0]])
    given = torch.tensor([[1.5, 9.0], [2.0, 3.0]])
    assert mean_absolute_error(given, right) == pytest.approx((0.5 + 0 + 1) / 3)


ROWS = [[0.9], [0.5, 0.8], [0.6, 0.2, 0.7]]


def test_matrices_by_hand():
    matrix, nan = matrix_of(ROWS), np.nan
    np.testing.assert_array_equal(matrix, [[0.9, nan, nan], [0.5, 0.8, nan], [0.6, 0.2, 0.7]])
    assert average_accuracy_curve(matrix).tolist() == pytest.approx([0.9, 1.3 / 2, 1.5 / 3])
    assert average_accuracy(matrix) == pytest.approx(0.5)
    assert anytime_accuracy(matrix) == pytest.approx((0.9 + 0.65 + 0.5) / 3)
    # after task 1: 0.5 - 0.9; after task 2: the mean of 0.6 - 0.9 and 0.2 - 0.8
    assert average_forgetting_curve(matrix).tolist() == pytest.approx([-0.4, -0.45])
    assert average_forgetting(matrix) == pytest.approx(-0.45)
    # Improving on an old task counts as positive; a single one has nothing to forget.
    assert average_forgetting(matrix_of([[0.5], [0.75, 1.0]])) == pytest.approx(0.25)
    single = matrix_of([[0.7]])
    assert average_accuracy(single) == pytest.approx(0.7)
    assert average_forgetting(single) == 0.0
    assert average_forgetting_curve(single).shape == (0,)


def test_tasks_that_come_in_batches_by_hand():
    # task 0 is tested on twice while it comes, task 1 once, and task 2 begins and ends unseen
    matrix = matrix_of([[0.4], [0.8], [0.6, 0.5], [0.2, 0.3, 0.9, 0.7]])
    assert matrix.shape == (4, 4)
    assert average_accuracy_curve(matrix).tolist() == pytest.approx([0.4, 0.8, 0.55, 0.525])
    # learned at tests 1, 2, 3, 3: 0.6 - 0.8; then the mean of 0.2 - 0.8 and 0.3 - 0.5
    curve = average_forgetting_curve(matrix)
    assert curve.tolist() == pytest.approx([-0.2, -0.4])
    assert average_forgetting(matrix) == pytest.approx(-0.4)
    # while a task comes, earlier ones are compared with the last test before it began
    twice = matrix_of([[0.5], [0.75], [0.5, 0.5], [0.25, 1.0]])
    assert average_forgetting_curve(twice).tolist() == pytest.approx([-0.25, -0.5])
    online = matrix_of([[0.4], [0.8], [0.6, 0.5]])
    assert anytime_accuracy(online) == pytest.approx((0.4 + 0.8 + 0.55) / 3)


shares = st.floats(0, 1)
triangles = st.integers(2, 5).flatmap(
    lambda size: st.tuples(*(st.lists(shares, min_size=i + 1, max_size=i + 1) for i in range(size)))
)


@given(rows=triangles)
def test_curves_equal_their_sums_and_leave_the_matrix_alone(rows):
    matrix = matrix_of(rows)
    before = matrix.copy()
    accuracy, forgetting = average_accuracy_curve(matrix), average_forgetting_curve(matrix)
    assert len(accuracy) == len(rows)
    assert len(forgetting) == len(rows) - 1
    for i, row in enumerate(rows):
        assert accuracy[i] == pytest.approx(sum(row) / (i + 1))
        if i:
            expected = sum(row[j] - rows[j][j] for j in range(i)) / i
            assert forgetting[i - 1] == pytest.approx(expected)
    assert average_accuracy(matrix) == accuracy[-1]
    assert average_forgetting(matrix) == forgetting[-1]
    np.testing.assert_array_equal(matrix, before)
