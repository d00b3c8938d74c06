"""Edges in the arrays that users hold."""

from __future__ import annotations

import numpy as np
import pytest

from evergraph.core.errors import DataError
from evergraph.online.conversion import as_edges


def test_a_row_of_an_array_is_an_edge() -> None:
    assert as_edges(np.array([[0, 7], [7, 3]])) == [(0, 7), (7, 3)]
    assert as_edges(np.array([["a", "b"]])) == [("a", "b")]
    assert as_edges(np.empty((0, 2), dtype=np.int64)) == []


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 1), (2, 2, 2)])
def test_an_array_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"edges have shape .*: expected \[edges, 2\], a row an"):
        as_edges(np.zeros(shape, dtype=np.int64))
