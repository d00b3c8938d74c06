"""Scores as probabilities, row by row: no bit of a row depends on the other rows."""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

Matrix = npt.NDArray[np.float32]
Rows = TypeVar("Rows", Tensor, Matrix)


def softmax(rows: Rows) -> Rows:
    """Return exp(x) / Σ exp(x) of every row; -inf gives 0.

    >>> softmax(np.array([[2, 2, -np.inf]], np.float32))
    array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    if isinstance(rows, Tensor):
        return rows.softmax(1)
    shares = np.exp(rows - rows.max(1, keepdims=True, initial=-np.inf))
    shares /= np.add.reduce(shares, axis=1, keepdims=True)
    return cast("Rows", shares)


def sigmoid(rows: Rows) -> Rows:
    """Return 1 / (1 + exp(-x)) of every value."""
    if isinstance(rows, Tensor):
        return rows.sigmoid()
    with np.errstate(over="ignore"):  # 1 / inf is 0
        return cast("Rows", np.float32(1) / (np.float32(1) + np.exp(-rows)))
