"""Plain and balanced accuracy by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.evaluation import balanced_accuracy, plain_accuracy


def both(predicted: list[int], labels: list[int]) -> tuple[float, float]:
    given = torch.tensor(predicted), torch.tensor(labels)
    return plain_accuracy(*given), balanced_accuracy(*given)


def test_by_hand() -> None:
    # class 5: 3 of 4 right; class 9: 0 of 1; class 2: 1 of 1
    plain, balanced = both([5, 5, 5, 9, 5, 2], [5, 5, 5, 5, 9, 2])
    assert plain == pytest.approx(4 / 6)
    assert balanced == pytest.approx((3 / 4 + 0 + 1) / 3)


def test_all_right_all_wrong() -> None:
    assert both([1, 0, 2], [1, 0, 2]) == (1.0, 1.0)
    assert both([0, 1, 0], [1, 0, 2]) == (0.0, 0.0)


def test_a_large_class_outweighs_a_small_one_in_plain_accuracy_only() -> None:
    plain, balanced = both([0] * 10, [0] * 9 + [1])
    assert plain == pytest.approx(0.9)
    assert balanced == pytest.approx(0.5)


def test_a_class_that_is_only_predicted_does_not_count() -> None:
    assert both([7, 0], [0, 0])[1] == pytest.approx(0.5)


@settings(max_examples=25, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_equal_to_counting(pairs: list[tuple[int, int]]) -> None:
    plain, balanced = both(*(list(side) for side in zip(*pairs, strict=True)))
    recalls = []
    for label in {label for _, label in pairs}:
        answers = [predicted == label for predicted, truth in pairs if truth == label]
        recalls.append(sum(answers) / len(answers))
    assert plain == pytest.approx(sum(p == y for p, y in pairs) / len(pairs))
    assert balanced == pytest.approx(sum(recalls) / len(recalls))
