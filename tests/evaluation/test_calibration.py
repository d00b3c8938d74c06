"""Expected calibration error by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.evaluation import expected_calibration_error


def ece(confidence: list[float], right: list[bool], **options: int) -> float:
    return expected_calibration_error(torch.tensor(confidence), torch.tensor(right), **options)


def test_by_hand() -> None:
    # in (0.8, 1]: 0.9, 0.9, 1.0, two of three right: |2 - 2.8|; in (0.4, 0.6]: 0.6, right: 0.4
    found = ece([0.9, 0.9, 1.0, 0.6], [True, False, True, True], bins=5)
    assert found == pytest.approx((0.8 + 0.4) / 4)


def test_as_sure_as_it_is_right_is_no_error() -> None:
    assert ece([0.75] * 4, [True, True, True, False]) == pytest.approx(0.0, abs=1e-7)
    assert ece([1.0] * 3, [True] * 3) == 0.0
    assert ece([1.0] * 3, [False] * 3) == 1.0


def test_errors_cancel_within_a_bin_and_not_between_bins() -> None:
    # 0.61 wrong and 0.65 right: |1 - 1.26| in one of 15 bins, 0.61 and 0.35 apart
    assert ece([0.61, 0.65], [False, True]) == pytest.approx(0.26 / 2)
    assert ece([0.61, 0.65], [False, True], bins=50) == pytest.approx((0.61 + 0.35) / 2)


def test_an_edge_belongs_to_the_bin_below() -> None:
    # 0.5 and 0.4 share (0, 0.5]: |1 - 0.9|; were 0.5 in the bin above, 0.5 + 0.4
    assert ece([0.5, 0.4], [True, False], bins=2) == pytest.approx(0.1 / 2)


def test_a_learner_that_diverged_has_none() -> None:
    assert math.isnan(ece([0.5, math.nan], [True, False]))


answers = st.lists(
    st.tuples(st.floats(1 / 128, 1, width=32), st.booleans()), min_size=1, max_size=20
)


@settings(max_examples=50, deadline=None)
@given(answers=answers, bins=st.integers(1, 20))
def test_equal_to_going_through_the_bins(answers: list[tuple[float, bool]], bins: int) -> None:
    edges = [float(torch.tensor(b / bins)) for b in range(bins + 1)]
    total = 0.0
    for low, high in pairwise(edges):
        inside = [(sure, right) for sure, right in answers if low < sure <= high]
        if inside:
            accuracy = sum(right for _, right in inside) / len(inside)
            confidence = sum(sure for sure, _ in inside) / len(inside)
            total += len(inside) / len(answers) * abs(accuracy - confidence)
    sure, right = (list(side) for side in zip(*answers, strict=True))
    assert ece(sure, right, bins=bins) == pytest.approx(total, abs=1e-6)  # type: ignore[arg-type]
