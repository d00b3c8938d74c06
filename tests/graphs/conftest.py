"""The compiled sum, in a form that is compiled in a second."""

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture
def one_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the compiled sum use one of its seven tiles for weights and half rows.

    All of them take seven seconds to compile, for each of these. Bits do not depend on the tile,
    and plain rows have all seven. ``make test-slow`` does without this.
    """
    if find_spec("numba") is None or os.environ.get("HYPOTHESIS_PROFILE", "gate") != "gate":
        return
    from evergraph.graphs.kernels import numba_sum

    whole = numba_sum.weighted_sums

    def chosen(rows: Any, x: Any, *rest: Any) -> None:
        plain = len(rows.weights) == 0 and x.values.dtype == "float32"
        (whole if plain else _in_pairs())(rows, x, *rest)

    monkeypatch.setattr(numba_sum, "weighted_sums", chosen)


@cache
def _in_pairs() -> Callable[..., None]:
    """Return what sums two columns at a time; not cached on disk, where it would outlive a tile."""
    from numba import njit

    from evergraph.graphs.kernels.numba_sum import _1 as tile

    @njit(nogil=True)
    def sums(rows, x, out, add, scale, add_scale, width, start, stop):
        for first in range(0, width, 2):
            last = min(first + 1, width - 1)
            tile(rows, x, out, add, scale, add_scale, first, last, start, stop)

    return sums
