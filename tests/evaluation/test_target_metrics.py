"""Measures of several labels and of numbers, by hand and beside scikit-learn's."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.evaluation import average_precision, macro_f1, mean_absolute_error, micro_f1, r2

NAN = float("nan")
GIVEN = torch.tensor([[0.9, 0.6, 0.1], [0.8, 0.2, 0.4], [0.3, 0.7, 0.2]])
RIGHT = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, NAN]])


def test_f1_by_hand() -> None:
    # label 0: 2 hits, 1 missed; label 1: 1 hit, 1 too many, 1 missed; label 2: nothing at all
    assert micro_f1(GIVEN, RIGHT) == pytest.approx(2 * 3 / (2 * 3 + 3))
    assert macro_f1(GIVEN, RIGHT) == pytest.approx((4 / 5 + 2 / 4) / 2)


def test_a_value_that_is_not_known_counts_for_nothing() -> None:
    wrong = RIGHT.clone()
    wrong[2, 0] = NAN  # the one that was missed
    assert micro_f1(GIVEN, wrong) == pytest.approx(2 * 3 / (2 * 3 + 2))


def test_nothing_to_find_and_nothing_given_is_right() -> None:
    nothing = torch.zeros(2, 2)
    assert micro_f1(nothing, nothing) == macro_f1(nothing, nothing) == 1.0
    assert math.isnan(average_precision(nothing, nothing))


def test_micro_f1_of_one_label_each_is_the_accuracy() -> None:
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


def test_r2_by_hand() -> None:
    right = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, NAN]])
    given = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 9.0]])
    assert r2(given, right) == pytest.approx(((1 - 9 / 14) + 1) / 2)
    assert r2(given + torch.tensor([0.0, 1.0]), right) == pytest.approx((1 - 9 / 14) / 2)


def test_mean_absolute_error_by_hand() -> None:
    right = torch.tensor([[1.0, NAN], [2.0, 4.0]])
    given = torch.tensor([[1.5, 9.0], [2.0, 3.0]])
    assert mean_absolute_error(given, right) == pytest.approx((0.5 + 0 + 1) / 3)
