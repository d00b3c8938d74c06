"""Arithmetic on rows whose bits do not depend on the other rows.

Elementwise addition and multiplication are safe; so are division and roots, which are rounded
correctly everywhere. Operations that a library computes differently inside and at the edge of a
block are not: products of matrices (their shape decides the order of sums), sums over a row (a
single row may use other code than many), and fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evergraph.core.targets import Matrix as Matrix

ROWS_PER_PRODUCT = 64  # rows of every product: one shape for any number of rows
# Values in a panel of a matrix, and its columns: it stays in the fastest cache while all rows are
# multiplied by it, and BLAS shares no product that small among threads.
PANEL_VALUES, PANEL_COLUMNS = 1 << 13, 64
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
    return blockwise(lambda block: block @ matrix, rows, matrix.shape[1])


def blockwise(function: Callable[[Tensor], Tensor], rows: Tensor, dims: int) -> Tensor:
    """Return a function of rows, computed in blocks of a fixed size.  [n, k] -> [n, dims]"""
    out = rows.new_empty(len(rows), dims)
    for start in range(0, len(rows), ROWS_PER_PRODUCT):
        block = rows[start : start + ROWS_PER_PRODUCT]
        full = (
            block
            if len(block) == ROWS_PER_PRODUCT
            else rows.new_zeros(ROWS_PER_PRODUCT, rows.shape[1])
        )
        full[: len(block)] = block
        out[start : start + ROWS_PER_PRODUCT] = function(full)[: len(block)]
    return out


@dataclass(frozen=True, eq=False)
class Panels:
    """A matrix by which every row is multiplied alone.

    One row takes as long as a product of its own, where ``block_product`` multiplies a whole block;
    many rows take about twice as long as by that. Bits do not depend on the number of threads.

    >>> Panels.of(torch.tensor([[1., 2.], [3., 4.]]))(np.array([[1, 1], [0, 2]], np.float32))
    array([[4., 6.],
           [6., 8.]], dtype=float32)
    """

    columns: int  # of the matrix
    pieces: tuple[Matrix, ...]  # of its rows  [panels, rows, columns of a panel] each

    @classmethod
    def of(cls, matrix: Tensor) -> Panels:
        """Cut a matrix.  [k, dims]"""
        height, columns = matrix.shape
        count = max(-(-columns // PANEL_COLUMNS), 1)
        width = -(-columns // count)
        filled = torch.nn.functional.pad(matrix, (0, count * width - columns)).numpy()
        panels = filled.reshape(height, count, width).swapaxes(0, 1)
        pieces = max(-(-height * width // PANEL_VALUES), 1)
        return cls(columns, tuple(map(np.ascontiguousarray, np.array_split(panels, pieces, 1))))

    def __call__(self, rows: Matrix) -> Matrix:
        """Return rows @ matrix.  [n, k] -> [n, dims]"""
        first, *others = self.pieces
        panels, stop, width = first.shape
        total: Matrix = np.matmul(rows[:, None, :stop], first[:, None])  # [panels, n, 1, width]
        for piece in others:
            start, stop = stop, stop + piece.shape[1]
            total += np.matmul(rows[:, None, start:stop], piece[:, None])
        return total.swapaxes(0, 1).reshape(len(rows), panels * width)[:, : self.columns]


def tanh(rows: Tensor) -> Tensor:
    """Return tanh of every value."""
    return torch.from_numpy(np.tanh(rows.numpy()))
