"""Rows scaled and rounded on a GPU, at the speed of its memory.

Imported only where Triton is. torch's own product of a matrix and a column reads and writes single
numbers, and takes 1.6 to 2.4 times as long (``benchmarks/gpu.py``: a twentieth of two hops).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

ROWS = 8  # that a program scales
WIDEST = 128  # columns of each


def scale_into(features: Tensor, right: Tensor, held: Tensor) -> None:
    """Fill ``held`` with R features, rounded to its type; the bits of ``torch.mul``.

    features, held: [rows, dims], whose rows are whole; right: float32 [rows]
    """
    rows, dims = features.shape
    block = min(triton.next_power_of_2(max(dims, 1)), WIDEST)
    scale_rows[(triton.cdiv(rows, ROWS), triton.cdiv(dims, block))](
        features, right, held, rows, dims, features.stride(0), held.stride(0),
        ROWS=ROWS, BLOCK=block,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def scale_rows(  # type: ignore[no-untyped-def]  # Triton reads annotations: it knows its own only
    features, right, held, rows, dims, stride, held_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Scale some columns of some rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    inside = there[:, None] & (column < dims)[None, :]
    found = tl.load(features + row[:, None] * stride + column[None, :], mask=inside)
    factor = tl.load(right + row, mask=there)
    tl.store(
        held + row[:, None] * held_stride + column[None, :],
        found.to(tl.float32) * factor[:, None],
        mask=inside,
    )
