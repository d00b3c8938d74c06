"""Variance taken apart, by hand and by property."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evergraph.studies.protocols import shares


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[[1, 1], [1, 1]], [[3, 3], [3, 3]]], (1, 0, 0, 0)),
        ([[[1, 1], [3, 3]], [[1, 1], [3, 3]]], (0, 1, 0, 0)),
        ([[[1, 1], [3, 3]], [[3, 3], [1, 1]]], (0, 0, 1, 0)),  # they change places
        ([[[1, 3], [3, 1]], [[1, 3], [1, 3]]], (0, 0, 0, 1)),
        # Means of methods 2 and 6, of protocols 3 and 5, seeds 1 around each: 8 * 4, 8 * 1, 8 * 1.
        ([[[0, 2], [2, 4]], [[4, 6], [6, 8]]], (32 / 48, 8 / 48, 0, 8 / 48)),
        ([[[5.0]]], (0, 0, 0, 0)),
    ],
)
def test_by_hand(values: list[list[list[float]]], expected: tuple[float, ...]) -> None:
    assert astuple(shares(np.array(values, dtype=float))) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(float, hnp.array_shapes(min_dims=3, max_dims=3, max_side=4),
                  elements=st.floats(0, 100)))  # fmt: skip
def test_nothing_is_lost(values: np.ndarray) -> None:
    found = shares(values)
    whole = sum(astuple(found))
    assert whole == pytest.approx(1.0) or values.std() < 1e-6
    assert all(part >= 0 for part in astuple(found))
