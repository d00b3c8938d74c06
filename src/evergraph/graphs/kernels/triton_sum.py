"""Sums over the rows of an adjacency on a GPU, by a kernel that reads no weights.

Imported only where Triton is. Â = L (A + sI) R, so features are scaled by R once, rows of that are
added up, and the sums are scaled by L: an entry costs its column and a row of features, and Â is
never written out.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evergraph.graphs.kernels.scaled_rows import ScaledRows

# Bytes of a row that a program sums: a row whole if it is short. Of longer ones a narrow slice, so
# that more of the same columns of all nodes stays in the cache; see ``benchmarks/gpu.py``.
WHOLE, SLICE = 512, 256
VECTOR = 16  # bytes that a thread reads at once, which rows must begin at multiples of
UNROLLED = 8  # entries whose rows are asked for before the first is there
HALVES = (torch.float16, torch.bfloat16)


def triton_product(
    smoother: ScaledRows,
    features: Tensor,
    out: Tensor,
    *,
    add: Tensor | None,
    scale: float,
    add_scale: float,
) -> None:
    """Fill ``out``, summing in float32 whatever features are held in.

    Entries of a row are added in their order, each column by itself, so no bit depends on which
    columns or rows are asked for.

    features: float32, float16 or bfloat16 [columns, dims]; out, add: [rows, dims]
    """
    scaled = _scaled(features, smoother.right)
    block = _block(scaled, features.shape[1])
    grid = (out.shape[0], triton.cdiv(features.shape[1], block))
    weights = smoother.weights
    sum_rows[grid](
        smoother.indptr,
        smoother.indices,
        smoother.indices if weights is None else weights,
        scaled,
        smoother.left,
        out,
        out if add is None else add,
        features.shape[1],
        scaled.stride(0) // _unit(scaled),
        out.stride(0),
        0 if add is None else add.stride(0),
        smoother.first,
        scale,
        add_scale,
        OWN=smoother.self_loops,
        WEIGHTED=weights is not None,
        ADDED=add is not None,
        UNIT=_unit(scaled),
        BLOCK=block,
        UNROLLED=UNROLLED,
        num_warps=1,
    )


def _scaled(features: Tensor, right: Tensor) -> Tensor:
    """Return R features, rows a multiple of a vector apart.  [columns, at least dims]

    Rows of half numbers begin at whole lines of the cache: one that straddles two costs both.
    """
    unit = 128 // features.element_size() if features.dtype in HALVES else _unit(features)
    rows, dims = features.shape
    scaled = features.new_empty(rows, -(-dims // unit) * unit)
    torch.mul(features, right[:, None], out=scaled[:, :dims])
    return scaled


def _unit(features: Tensor) -> int:
    return VECTOR // features.element_size()


def _block(scaled: Tensor, dims: int) -> int:
    """Return how many columns a program sums, a power of 2."""
    size = scaled.element_size()
    whole = triton.next_power_of_2(max(dims, 32))
    return int(min(whole, (WHOLE if dims * size <= WHOLE else SLICE) // size))


@triton.jit  # type: ignore[untyped-decorator]
def sum_rows(
    indptr: Any, indices: Any, weights: Any, features: Any, left: Any, out: Any, add: Any,
    dims: Any, units: Any, out_stride: Any, add_stride: Any, first: Any,
    scale: Any, add_scale: Any,
    OWN: tl.constexpr, WEIGHTED: tl.constexpr, ADDED: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, UNROLLED: tl.constexpr,
) -> None:  # fmt: skip
    """Fill some columns of one row; programs of the same columns run side by side.

    units: how far rows of features lie apart, in vectors: so the compiler knows that they begin at
    multiples of one.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < units * UNIT  # what lies behind the last column is read and not written
    start, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    whole = start + (stop - start) // UNROLLED * UNROLLED
    total = tl.zeros((BLOCK,), tl.float32)
    for entry in range(start, whole, UNROLLED):
        for ahead in tl.static_range(UNROLLED):
            place = tl.load(indices + entry + ahead).to(tl.int64) * units * UNIT
            found = tl.load(features + place + columns, mask=inside, other=0.0).to(tl.float32)
            total += found * tl.load(weights + entry + ahead) if WEIGHTED else found
    for entry in range(whole, stop):
        place = tl.load(indices + entry).to(tl.int64) * units * UNIT
        found = tl.load(features + place + columns, mask=inside, other=0.0).to(tl.float32)
        total += found * tl.load(weights + entry) if WEIGHTED else found
    if OWN:
        place = (first + row) * units * UNIT
        total += tl.load(features + place + columns, mask=inside, other=0.0).to(tl.float32)
    total *= tl.load(left + row) * scale
    written = columns < dims
    if ADDED:
        more = tl.load(add + row * add_stride + columns, mask=written, other=0.0)
        total += add_scale * more.to(tl.float32)
    tl.store(out + row * out_stride + columns, total, mask=written)
