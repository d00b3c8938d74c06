"""Cutting a sequence of items into slices of bounded cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import Tensor

# What a row costs besides its entries, in entries: keeps blocks of empty rows small as well.
ROW_COST = 16


def cut(costs: npt.NDArray[np.float64], limit: float) -> Iterator[slice]:
    """Cut a sequence into slices whose summed cost stays below ``limit`` (one item at least).

    >>> list(cut(np.array([3.0, 1.0, 9.0, 2.0]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    total = np.cumsum(costs)
    start = 0
    while start < len(costs):
        spent = total[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(total, spent + limit, side="right")))
        yield slice(start, stop)
        start = stop


def cut_rows(indptr: Tensor, rows: Tensor, limit: int) -> Iterator[slice]:
    """Cut rows of a CSR matrix so that no block has too many entries.

    indptr: [n + 1]; rows: int64 [m]
    """
    lengths = indptr.index_select(0, rows + 1) - indptr.index_select(0, rows)
    return cut(lengths.cpu().double().numpy() + ROW_COST, limit)
