"""Rows scaled and rounded on a GPU, at the speed of its memory.

Imported only where Triton is. torch's own product of a matrix and a column reads and writes single
numbers, where whole vectors could be.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

ROWS = 4  # that a program scales
WIDEST = 128  # columns of each
UNIT = 4  # values that a thread reads or writes at once, where rows allow it


def scale_into(features: Tensor, right: Tensor, held: Tensor) -> None:
    """Fill ``held`` with R features, rounded to its type; the bits of ``torch.mul``.

    features, held: [rows, dims], whose rows are whole; right: float32 [rows]
    """
    rows, dims = features.shape
    block = min(triton.next_power_of_2(max(dims, 1)), WIDEST)
    unit = 1 if any(map(_uneven, (features, held))) else UNIT
    scale_rows[(triton.cdiv(rows, ROWS), triton.cdiv(dims, block))](
        features, right, held, rows,
        dims // unit, features.stride(0) // unit, held.stride(0) // unit,
        UNIT=unit, ROWS=ROWS, BLOCK=block,
    )  # fmt: skip


def _uneven(matrix: Tensor) -> bool:
    """Whether some rows do not begin or end at multiples of ``UNIT`` values."""
    first = matrix.data_ptr() // matrix.element_size()
    return any(place % UNIT for place in (first, matrix.stride(0), matrix.shape[1]))


@triton.jit  # type: ignore[untyped-decorator]
def scale_rows(  # type: ignore[no-untyped-def]  # Triton reads annotations: it knows its own only
    features, right, held, rows, dims, stride, held_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scale some columns of some rows.

    dims, stride, held_stride: in multiples of UNIT, so that the compiler knows that they are.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    inside = there[:, None] & (column < dims * UNIT)[None, :]
    place = features + (row * stride * UNIT)[:, None] + column[None, :]
    factor = tl.load(right + row, mask=there)
    scaled = tl.load(place, mask=inside).to(tl.float32) * factor[:, None]
    to = held + (row * held_stride * UNIT)[:, None] + column[None, :]
    tl.store(to, scaled, mask=inside)
