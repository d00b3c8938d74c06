"""How many embeddings a class may keep."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError
from evergraph.memory import class_budgets
from evergraph.memory.budget import check_budget


def test_a_whole_number_counts_per_class() -> None:
    assert class_budgets(3, {0: 50, 1: 4}, {0: 30, 1: 5}) == {0: 3, 1: 3}
    assert class_budgets(0, {0: 50}, {0: 30}) == {0: 0}


def test_no_class_keeps_more_than_it_has() -> None:
    assert class_budgets(10, {0: 50, 1: 4}, {0: 30, 1: 2}) == {0: 10, 1: 2}
    assert class_budgets(0.9, {0: 50}, {0: 30}) == {0: 30}


def test_a_fraction_is_of_all_nodes_of_the_class_and_at_least_one() -> None:
    # 4 % of 100 nodes, of 60 and of 10; sizes count nodes that are not for training too
    sizes, available = {0: 100, 1: 60, 2: 10}, {0: 60, 1: 36, 2: 6}
    assert class_budgets(0.04, sizes, available) == {0: 4, 1: 2, 2: 1}


def test_only_classes_with_training_nodes_are_given_a_budget() -> None:
    assert class_budgets(0.5, {0: 10, 1: 10}, {1: 6}) == {1: 5}
    assert class_budgets(2, {0: 10}, {}) == {}


@settings(max_examples=25, deadline=None)
@given(
    fraction=st.floats(0.001, 0.999),
    sizes=st.dictionaries(st.integers(0, 5), st.integers(1, 1000), min_size=1),
)
def test_fractions_come_to_within_half_a_node_of_what_was_asked(
    fraction: float, sizes: dict[int, int]
) -> None:
    for label, kept in class_budgets(fraction, sizes, sizes).items():
        assert 1 <= kept <= sizes[label]
        assert kept == 1 or abs(kept - fraction * sizes[label]) <= 0.5


@pytest.mark.parametrize("budget", [0, 1, 400, 0.0002, 0.4, 0.999])
def test_whole_numbers_and_fractions_pass(budget: float) -> None:
    check_budget(budget)


@pytest.mark.parametrize("budget", [-1, 0.0, 1.0, 1.5, -0.1, math.nan, True, "10", None])
def test_anything_else_is_refused(budget: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_budget(budget)  # type: ignore[arg-type]
    assert str(caught.value).startswith("budget must be an integer of at least 0 (per class) or")
    assert str(caught.value).endswith(f"not {budget!r}")
