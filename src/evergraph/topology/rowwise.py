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
LEAST_LENGTH = 1e-12  # of rows whose values can be squared without loss


def unit_rows(rows: Tensor, *, together: bool = False, out: Tensor | None = None) -> Tensor:
    """Return rows divided by their lengths; rows of zeros stay.  [n, dims] -> [n, dims]

    The one way to unit length. Rows so long or so short that their squares overflow or vanish are
    divided by their largest value first: any finite row comes out of length 1.

    together: on any device and by several threads, where bits may depend on other rows; out: where
    to put them.

    >>> unit_rows(torch.tensor([[3., 4.], [0., 0.], [3e30, 4e30], [3e-30, 4e-30]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000],
            [0.6000, 0.8000],
            [0.6000, 0.8000]])
    """
    measure = _lengths_together if together else _lengths_apart
    lengths = measure(rows)
    unit = torch.div(rows, lengths.clamp_min(LEAST_LENGTH), out=out)
    extreme = ~((lengths >= LEAST_LENGTH) & lengths.isfinite()).flatten()
    if bool(extreme.any()) and rows.shape[1]:
        peaks = rows[extreme].abs().amax(1, keepdim=True)
        scaled = rows[extreme] / peaks.masked_fill(peaks == 0, 1.0)
        unit[extreme] = scaled / measure(scaled).clamp_min(1.0)
    return unit


def _lengths_together(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return lengths


def _lengths_apart(rows: Tensor) -> Tensor:
    values = rows.numpy()
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.sqrt(np.add.reduce(values * values, axis=1, keepdims=True)))


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
