"""Arithmetic on rows whose bits do not depend on which other rows are computed with them.

Adding and multiplying value by value is safe; so are division and roots, which are rounded
correctly everywhere. Not safe are what a library does in one way inside and in another way at the
edge of a block: products of matrices (their shape decides in which order sums are made), sums over
a row (a single row may be summed by other code than many), and additions that multiply on the way.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BLOCK = 64  # rows of every product: one shape, whatever is asked for
LEAST_LENGTH = 1e-12  # what shorter rows are divided by, as torch's ``normalize`` does


def unit_rows(rows: Tensor) -> Tensor:
    """Return rows divided by their lengths; rows of zeros stay.  [n, dims] -> [n, dims]

    >>> unit_rows(torch.tensor([[3., 4.], [0., 0.]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    values = rows.numpy()
    lengths = np.sqrt(np.add.reduce(values * values, axis=1, keepdims=True))
    return torch.from_numpy(values / np.maximum(lengths, np.float32(LEAST_LENGTH)))


def block_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows @ matrix, always multiplied in blocks of as many rows.  [n, k] -> [n, dims]

    >>> block_product(torch.eye(2), torch.tensor([[1., 2.], [3., 4.]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    out = rows.new_empty(len(rows), matrix.shape[1])
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        full = block if len(block) == BLOCK else rows.new_zeros(BLOCK, rows.shape[1])
        full[: len(block)] = block
        out[start : start + BLOCK] = (full @ matrix)[: len(block)]
    return out


def tanh(rows: Tensor) -> Tensor:
    """Return tanh of every value."""
    return torch.from_numpy(np.tanh(rows.numpy()))
