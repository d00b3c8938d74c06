"""Holm's correction by hand, and what must hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.evaluation.statistics import holm


def test_by_hand() -> None:
    # 0.01 · 4, 0.02 · 3, 0.022 · 2 is below that and takes its place, 0.9 · 1
    assert holm([0.9, 0.022, 0.01, 0.02]) == pytest.approx([0.9, 0.06, 0.04, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_what_must_hold(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= c <= 1 for p, c in zip(p_values, corrected, strict=True))
    assert min(corrected) == min(1.0, len(p_values) * min(p_values))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [corrected[i] for i in order] == sorted(corrected)
