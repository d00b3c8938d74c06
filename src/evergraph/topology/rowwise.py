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
FEW_ROWS = 4  # of every product of ``RowProduct``
ROWS_PER_PANEL = 1 << 10  # of a matrix: BLAS multiplies a few rows with it in one thread
# Of a row of a panel, by bytes of a value: see ``RowProduct``. Measured with AVX-512.
PANEL_BYTES = {4: 256, 8: 128}
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

    if not together:
        return torch.from_numpy(unit_parts(rows.numpy()))
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit = torch.div(rows, lengths.clamp_min(LEAST_LENGTH), out=out)
    extreme = ~((lengths >= LEAST_LENGTH) & lengths.isfinite()).flatten()
    if bool(extreme.any()) and rows.shape[1]:
        peaks = rows[extreme].abs().amax(1, keepdim=True)
        scaled = rows[extreme] / (peaks + (peaks == 0))
        unit[extreme] = scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp_min(
            1.0
        )
    return unit


def unit_parts(values: Matrix, parts: int = 1) -> Matrix:
    """Return the same of every part of rows, by NumPy, in a tenth of torch's time for one row.

    [n, dims] -> [n, dims]
    """
    rows = values.reshape(len(values) * parts, values.shape[1] // parts)
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
    unit: Matrix = np.divide(rows, np.maximum(lengths, LEAST_LENGTH))
    extreme = ~((lengths >= LEAST_LENGTH) & (lengths < np.inf)).ravel()
    if extreme.any() and (extreme_rows := rows[extreme]).any():
        peaks = np.abs(extreme_rows).max(1, keepdims=True)
        scaled = extreme_rows / (peaks + (peaks == 0))
        lengths = np.sqrt(np.add.reduce(scaled * scaled, axis=1, keepdims=True))
        unit[extreme] = scaled / np.maximum(lengths, 1)
    return unit.reshape(values.shape)


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
class RowProduct:
    """A matrix by which rows are multiplied, four at a time: the bits of a row are always the same.

    As ``block_product``, in blocks that are nearly as quick for one row as the matrix is read. It
    lies in panels, as wide as BLAS keeps sums of in registers and low enough for a cache; products
    with those below each other are added. No product is so large that BLAS shares it among threads,
    which could change its bits.

    >>> RowProduct.of(torch.tensor([[1., 2.], [3., 4.]]))(np.array([[1, 1], [0, 2]], np.float32))
    array([[4., 6.],
           [6., 8.]], dtype=float32)
    """

    # From top to bottom: columns, then zeros up to the width of a panel.  [panels, 1, k, width] each
    panels: tuple[Matrix, ...]
    columns: int  # number of values for every row

    @classmethod
    def of(cls, matrix: Tensor) -> RowProduct:
        """Cut a matrix.  [k, dims]"""
        values = matrix.numpy()
        height, columns = values.shape
        width = max(min(PANEL_BYTES[values.itemsize] // values.itemsize, columns), 1)
        count = -(-columns // width)
        padded = np.zeros((height, count * width), values.dtype)
        padded[:, :columns] = values
        panels = padded.reshape(height, 1, count, width).transpose(2, 1, 0, 3)
        starts = range(0, max(height, 1), ROWS_PER_PANEL)
        cut = (panels[:, :, start : start + ROWS_PER_PANEL] for start in starts)
        return cls(tuple(map(np.ascontiguousarray, cut)), columns)

    def __call__(self, rows: Matrix) -> Matrix:
        """Return rows @ matrix.  [n, k] -> [n, dims]"""
        first, *lower = self.panels
        count, _, _, width = first.shape
        blocks = -(-len(rows) // FEW_ROWS)
        padded = np.zeros((blocks * FEW_ROWS, rows.shape[1]), first.dtype)
        padded[: len(rows)] = rows
        by_block = padded.reshape(blocks, FEW_ROWS, rows.shape[1])
        products = np.matmul(by_block[:, :, :ROWS_PER_PANEL], first)
        for place, panels in enumerate(lower, start=1):
            start = place * ROWS_PER_PANEL
            products += np.matmul(by_block[:, :, start : start + ROWS_PER_PANEL], panels)
        side_by_side = products.transpose(1, 2, 0, 3)  # [blocks, rows, panels, width]
        result: Matrix = side_by_side.reshape(blocks * FEW_ROWS, count * width)
        return result[: len(rows), : self.columns]


def tanh(rows: Tensor) -> Tensor:
    """Return tanh of every value."""
    return torch.from_numpy(np.tanh(rows.numpy()))
