"""New memory for a product, on large pages."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_LINE = 64  # bytes of a cache line


def room(
    rows: int, *, like: Tensor, width: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return uninitialised memory for so many rows that are like others.  -> [rows, dims]

    On a CPU numpy asks Linux for pages of 2 MB where torch takes 4 kB ones, and so is spared
    thousands of page faults that cost about as much as a whole product
    (``benchmarks/kernels.py``). The first value lies at the start of a cache line, so that rows of
    a multiple of 16 floats touch no line too many.

    width, dtype: those of the others unless given.

    >>> new = room(3, like=torch.eye(16))
    >>> new.shape, new.data_ptr() % 64
    (torch.Size([3, 16]), 0)
    """
    width = like.shape[1] if width is None else width
    dtype = like.dtype if dtype is None else dtype
    if like.device.type != "cpu":
        return like.new_empty(rows, width, dtype=dtype)
    size = rows * width * dtype.itemsize
    values = np.empty(size + _LINE, dtype=np.uint8)
    skipped = -values.ctypes.data % _LINE
    return torch.from_numpy(values[skipped : skipped + size]).view(dtype).reshape(rows, width)
