"""Arithmetic on rows whose bits do not depend on the other rows.

Elementwise addition and multiplication are safe; so are division and roots, which are rounded
correctly everywhere. Operations that a library computes differently inside and at the edge of a
block are not: products of matrices (their shape decides the order of sums), sums over a row (a
single row may use other code than many), and fused multiply-adds.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BLOCK = 64  # rows of every product: one shape for any number of rows
LEAST_LENGTH = 1e-12  # of rows whose values can be squared without loss


def unit_rows(rows: Tensor, *, together: bool = False, out: Tensor | None = None) -> Tensor:
    """Return rows scaled to unit length; zero rows stay.  [n, dims] -> [n, dims]

    Use this function for all scaling to unit length. Rows whose squares overflow or vanish are
    divided by their largest value first: any finite row gets length 1.

    together: use any device and several threads, so that bits may depend on other rows; out: the
    destination.

    >>> unit_rows(torch.tensor([[3., 4.], [0., 0.], [3e30, 4e30], [3e-30, 4e-30]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000],
            [0.6000, 0.8000],
            [0.6000, 0.8000]])
    """

    def measure(rows: Tensor) -> Tensor:
        if together:
            lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
            return lengths
        values = rows.numpy()
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.sqrt(np.add.reduce(values * values, axis=1, keepdims=True)))

    lengths = measure(rows)
    unit = torch.div(rows, lengths.clamp_min(LEAST_LENGTH), out=out)
    extreme = ~((lengths >= LEAST_LENGTH) & lengths.isfinite()).flatten()
    if bool(extreme.any()) and rows.shape[1]:
        peaks = rows[extreme].abs().amax(1, keepdim=True)
        scaled = rows[extreme] / peaks.masked_fill(peaks == 0, 1.0)
        unit[extreme] = scaled / measure(scaled).clamp_min(1.0)
    return unit


def block_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows @ matrix, multiplied in blocks of a fixed size.  [n, k] -> [n, dims]"""
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
