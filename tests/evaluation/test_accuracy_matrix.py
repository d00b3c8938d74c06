"""AA and AF of matrices small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.evaluation import (
    anytime_accuracy,
    area_under_curve,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
    average_forgetting_curve,
)
from evergraph.evaluation.accuracy_matrix import matrix_of

ROWS = [[0.9], [0.5, 0.8], [0.6, 0.2, 0.7]]


def test_by_hand() -> None:
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


def test_tasks_that_come_in_batches_by_hand() -> None:
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
    assert area_under_curve(online) == anytime_accuracy(online)


shares = st.floats(0, 1)
triangles = st.integers(2, 5).flatmap(
    lambda size: st.tuples(*(st.lists(shares, min_size=i + 1, max_size=i + 1) for i in range(size)))
)


@given(rows=triangles)
def test_curves_equal_their_sums_and_leave_the_matrix_alone(rows: tuple[list[float], ...]) -> None:
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
