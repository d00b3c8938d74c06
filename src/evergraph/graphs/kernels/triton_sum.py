"""Sums over the rows of an adjacency on a GPU, by a Triton kernel that reads no weights.

Imported only if Triton is installed. Â = L (A + sI) R is never materialised: features are scaled by
R once, their rows are summed, and the sums are scaled by L. An entry costs one column index and one
row.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from evergraph.graphs.kernels.scaled_rows import (
    MAX_WHOLE_ROW,
    SLICE,
    VECTOR,
    Affine,
    ScaledRows,
    held_rows,
)

UNROLLED = 8  # entries whose rows are requested before the first arrives


def triton_product(smoother: ScaledRows, features: Tensor, out: Tensor, affine: Affine) -> None:
    """Fill ``out``, summing in float32 whatever the type of the features.

    Entries of a row are added in their order, each column by itself, so no bit depends on the
    selection of columns or rows.

    features: float32, float16 or bfloat16 [columns, dims]; out: [rows, dims]
    """
    add, scale, share = affine
    dims = features.shape[1]
    weights = smoother.weights
    rows = features if smoother.scaled else held_rows(features, smoother.right, features.dtype)
    size = rows.element_size()
    unit = VECTOR // size
    padded_dims = triton.next_power_of_2(max(dims, 32))
    block = int(
        min(padded_dims, (MAX_WHOLE_ROW if dims * size <= MAX_WHOLE_ROW else SLICE) // size)
    )
    sum_rows[(out.shape[0], triton.cdiv(dims, block))](
        smoother.indptr,
        smoother.indices,
        smoother.left if weights is None else weights,
        rows,
        smoother.left,
        out,
        out if add is None else add,
        dims,
        rows.stride(0) // unit,
        out.stride(0),
        0 if add is None else add.stride(0),
        smoother.first,
        scale,
        share,
        OWN=smoother.self_loops,
        WEIGHTED=weights is not None,
        ADDED=add is not None,
        UNIT=unit,
        BLOCK=block,
        UNROLLED=UNROLLED,
        num_warps=1,
    )


@triton.jit  # type: ignore[untyped-decorator]
def row_at(  # type: ignore[no-untyped-def]  # Triton allows no annotations but its own
    features, row, units, columns, inside, UNIT: tl.constexpr
):
    """Return some columns of one row.

    units: distance of rows in vectors, which tells the compiler that they begin at multiples of
    one.
    """
    start = features + row.to(tl.int64) * units * UNIT
    return tl.load(start + columns, mask=inside, other=0.0).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def sum_rows(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    weights,
    features,
    left,
    out,
    add,
    dims,
    units,
    out_stride,
    add_stride,
    first,
    scale,
    add_scale,
    OWN: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ADDED: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLLED: tl.constexpr,
):
    """Fill some columns of one row; programs of the same columns run in parallel."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < units * UNIT  # padding after the last column is read but not written
    start, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    several = start + (stop - start) // UNROLLED * UNROLLED
    total = tl.zeros((BLOCK,), tl.float32)
    for entry in range(start, several, UNROLLED):
        for ahead in tl.static_range(UNROLLED):
            neighbour = tl.load(indices + entry + ahead)
            values = row_at(features, neighbour, units, columns, inside, UNIT)
            total += values * tl.load(weights + entry + ahead) if WEIGHTED else values
    for entry in range(several, stop):
        neighbour = tl.load(indices + entry)
        values = row_at(features, neighbour, units, columns, inside, UNIT)
        total += values * tl.load(weights + entry) if WEIGHTED else values
    if OWN:
        total += row_at(features, first + row, units, columns, inside, UNIT)
    total *= tl.load(left + row) * scale
    written = columns < dims
    if ADDED:
        added = tl.load(add + row * add_stride + columns, mask=written, other=0.0)
        total += add_scale * added.to(tl.float32)
    tl.store(out + row * out_stride + columns, total, mask=written)
