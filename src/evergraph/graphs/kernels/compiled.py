"""Plain loops made fast: compiled by numba, run in threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise, starmap
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from evergraph.core.device import available_threads
from evergraph.graphs.kernels.row_ranges import spread

# Pieces a thread: a thread that met cheap rows takes the next piece while another is busy.
_PIECES = 8


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of plain loops over arrays as machine code that leaves Python's lock.

    The machine code is kept on disk where there is a place for it.
    """
    from numba import njit

    try:
        fast: Callable[..., Any] = njit(nogil=True, cache=True)(loop)
    except RuntimeError:  # no folder that may be written to
        fast = njit(nogil=True)(loop)
    return fast


def unsigned(array: Tensor) -> npt.NDArray[Any]:
    """Return integers as unsigned ones: an index that cannot be negative needs no check.

    >>> import torch
    >>> unsigned(torch.tensor([1, 2])).dtype, unsigned(torch.tensor([1, 2]).int()).dtype
    (dtype('uint64'), dtype('uint32'))
    """
    numbers = array.numpy()
    return numbers.view(np.uint64 if numbers.dtype == np.int64 else np.uint32)


def in_threads(loop: Callable[..., None], costs: npt.NDArray[Any], *arrays: Any) -> None:
    """Run ``loop(*arrays, start, stop)`` over all items, cut into pieces of about equal cost.

    Python's own threads over machine code: they can be used from anywhere, also inside other
    threads and after a fork, where numba's own cannot.

    costs: what each item costs.  [items]
    """
    threads = available_threads()
    total = np.cumsum(costs, dtype=np.float64)
    pieces = min(len(total), threads * _PIECES)
    if not pieces:
        return
    inner = np.searchsorted(total, total[-1] * np.arange(1, pieces) / pieces)
    ends = np.unique(np.concatenate([[0], inner, [len(total)]])).tolist()
    fast = compiled(loop)
    spread(lambda part: fast(*arrays, part.start, part.stop), starmap(slice, pairwise(ends)))
