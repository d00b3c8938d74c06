"""Rows as a product holds them while it sums: multiplied by R, and in half numbers if asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs.kernels.row_ranges import spread
from evergraph.graphs.kernels.scaled_rows import room, triton_works

LARGEST = torch.finfo(torch.float16).max
ROUNDED = 1 << 19  # values at a time on a CPU: 2 MB of memory beside what is returned

# Bytes of a row that a GPU's program sums: a row whole if it is short. Of longer ones a narrow
# slice, so that more of the same columns of all nodes stays in the cache; ``benchmarks/gpu.py``.
WHOLE, SLICE = 512, 256
VECTOR = 16  # bytes that a GPU's thread reads at once; rows begin at multiples of it
LINE = 128  # bytes of its cache's lines; a slice of a row that straddles two costs both


def held_rows(features: Tensor, right: Tensor, kind: torch.dtype) -> Tensor:
    """Return R features, rounded to a type.  [columns, dims], float32 [columns] -> [columns, dims]

    On a GPU rows lie further apart than they are long, so that they begin where they are read best.

    >>> held_rows(torch.tensor([[1., 3.]]), torch.tensor([1 / 3]), torch.bfloat16)
    tensor([[0.3340, 1.0000]], dtype=torch.bfloat16)
    """
    rows, dims = features.shape
    if features.device.type == "cpu":
        held = room(rows, like=features, dtype=kind)
        step = max(ROUNDED // max(dims, 1), 1)
        parts = [slice(start, start + step) for start in range(0, rows, step)]
        if kind == torch.float16:
            _round(features, right, held, parts)
        else:
            for part in parts:
                held[part].copy_(features[part] * right[part, None])
        return held
    held = room(rows, like=features, width=_length(dims, kind.itemsize), dtype=kind)[:, :dims]
    _scale(features, right, held)
    if kind == torch.float16 and features.numel():
        largest = torch.stack(features.aminmax()).abs().max() * right.max()
        if float(largest) > LARGEST and bool(held.isinf().any()):
            raise _too_large(features)
    return held


def _round(features: Tensor, right: Tensor, held: Tensor, parts: Sequence[slice]) -> None:
    """Fill float16 rows on a CPU: by numpy, five times as fast as torch on some processors."""

    def work(part: slice) -> None:
        with np.errstate(over="raise"):
            np.multiply(
                features[part].numpy(),
                right[part, None].numpy(),
                out=held[part].numpy(),
                dtype=np.float32,
                casting="unsafe",
            )

    try:
        spread(work, parts)
    except FloatingPointError:
        raise _too_large(features) from None


def _scale(features: Tensor, right: Tensor, held: Tensor) -> None:
    """Fill ``held`` with R features, on a device."""
    if not triton_works() or features.stride(1) != 1:
        torch.mul(features, right[:, None], out=held)
        return
    from evergraph.graphs.kernels.triton_scale import scale_into

    scale_into(features, right, held)


def _length(dims: int, size: int) -> int:
    """Return how many values apart rows lie on a GPU, so that few straddle lines of the cache.

    At whole lines where slices of rows are read, or rows of half numbers; shorter than a line, at
    parts of one. A short row of whole numbers costs more by being longer.

    >>> _length(100, 4), _length(602, 4), _length(100, 2), _length(20, 2)
    (100, 608, 128, 32)
    """
    bytes_ = dims * size
    if size == 4 and bytes_ <= WHOLE:
        unit = VECTOR
    else:
        unit = min(LINE, max(VECTOR, 1 << (bytes_ - 1).bit_length()))
    return -(-bytes_ // unit) * unit // size


def _too_large(features: Tensor) -> DataError:
    return DataError(
        f"features must be at most {LARGEST:,.0f} in size for rows 'float16', at every hop, not "
        f"{float(features.abs().amax()):g}: rows 'bfloat16' have float32's range"
    )
