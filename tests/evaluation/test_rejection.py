"""AUROC by hand, and against counting pairs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.evaluation import rejection_auroc


def auroc(known: list[float], unknown: list[float]) -> float:
    return rejection_auroc(torch.tensor(known), torch.tensor(unknown))


def test_by_hand() -> None:
    # 3 beats 0, 1 and 2 and ties with 3; 1 beats 0 and ties with 1: (3.5 + 1.5) / 8
    assert auroc([2.0, 0.0, 3.0, 1.0], [3.0, 1.0]) == pytest.approx(5 / 8)


def test_told_apart_the_wrong_way_round_and_not_at_all() -> None:
    assert auroc([0.0, 1.0], [2.0, 5.0]) == 1.0
    assert auroc([2.0, 5.0], [0.0, 1.0]) == 0.0
    assert auroc([4.0] * 3, [4.0] * 5) == 0.5


def test_no_nodes_or_no_numbers_give_none() -> None:
    assert math.isnan(auroc([], [1.0]))
    assert math.isnan(auroc([1.0], []))
    assert math.isnan(auroc([1.0, math.nan], [1.0]))
    assert auroc([-math.inf, 0.0], [math.inf]) == 1.0


scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(known=scores, unknown=scores)
def test_equal_to_counting_pairs_and_turned_round(known: list[float], unknown: list[float]) -> None:
    pairs = [(k, u) for k in known for u in unknown]
    won = sum(1.0 if u > k else 0.5 if u == k else 0.0 for k, u in pairs)
    assert auroc(known, unknown) == pytest.approx(won / len(pairs))
    assert auroc(unknown, known) == pytest.approx(1 - auroc(known, unknown))
