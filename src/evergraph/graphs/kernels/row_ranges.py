"""Rows cut into ranges of like work, threads that share them, and loops compiled by numba."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise, starmap
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.device import available_threads, fixed_sums

# A thread takes many ranges, so that none waits long for another that was given the hubs.
RANGES_PER_THREAD = 16
# Of a mapped adjacency, the most entries (16 MB of them) that a range keeps in memory.
MAPPED_ENTRIES = 1 << 22
# Values that are read in less time than threads take to start.
ALONE = 1 << 18
# Multiplications in a tile of a dense product, and its least height: some milliseconds of one
# thread. Smaller ones read more than once what they share.
TILE, TILE_ROWS = 1 << 27, 128


def row_ranges(indptr: Tensor, *, count: int) -> list[slice]:
    """Cut rows into at most ``count`` ranges, each with about as many entries and rows in sum.

    >>> row_ranges(torch.tensor([0, 6, 7, 8, 9]), count=2)  # the first row alone is half the work
    [slice(0, 1, None), slice(1, 4, None)]
    """
    starts = indptr.numpy()
    rows = len(starts) - 1
    whole = int(starts[-1]) - int(starts[0]) + rows

    def before(row: int) -> int:
        return int(starts[row]) - int(starts[0]) + row

    cuts = [bisect_left(range(rows), whole * k // count, key=before) for k in range(count)]
    bounds = sorted({*cuts, rows})
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def range_count(indptr: Tensor, *, mapped: bool) -> int:
    """Return how many ranges a product should be cut into."""
    count = RANGES_PER_THREAD * available_threads()
    entries = int(indptr[-1]) - int(indptr[0])
    return max(count, -(-entries // MAPPED_ENTRIES)) if mapped else count


def spread(work: Callable[[slice], object], ranges: Iterable[slice]) -> None:
    """Do the work of every range, on as many threads as there are for it.

    Plain threads, as the work holds no lock of Python's: they wait without spinning, may be
    started from several threads at once, and leave torch's own alone. What one of them raises is
    raised here.
    """
    parts = tuple(ranges)
    left, failed = iter(parts), []

    def take() -> None:
        torch.get_num_threads()  # until it is asked, BLAS in a new thread has all of them
        try:
            for part in left:  # each is taken once: a step of this iterator is one of Python's own
                work(part)
        except BaseException as error:
            failed.append(error)

    helpers = [Thread(target=take) for _ in range(min(available_threads(), len(parts)) - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if failed:
        raise failed[0]


def in_parts(work: Callable[[slice], object], costs: npt.NDArray[Any], *, each: int) -> None:
    """Do the work of all items, by several threads where that pays.

    costs: of each item, int64 [items]; each: how many values a cost of 1 reads
    """
    ends = np.cumsum(costs)
    whole = int(ends[-1]) if len(ends) else 0
    threads = available_threads()
    if whole * each <= ALONE or threads == 1:
        work(slice(0, len(costs)))
        return
    parts = min(RANGES_PER_THREAD * threads, -(-whole * each // ALONE) + threads)
    cuts = np.searchsorted(ends, whole * np.arange(1, parts) // parts)
    bounds = np.unique(np.concatenate([[0], cuts, [len(costs)]])).tolist()
    spread(work, [slice(start, stop) for start, stop in pairwise(bounds)])


def row_tiles(rows: int, each: int) -> list[slice]:
    """Cut the rows of a dense product into tiles, by sizes alone: one where it is small.

    each: multiplications that a row takes.

    >>> row_tiles(1000, 1 << 19)
    [slice(0, 334, None), slice(334, 668, None), slice(668, 1000, None)]
    """
    height = -(-rows // max(min(rows * each // TILE, rows // TILE_ROWS), 1))
    return [slice(start, min(start + height, rows)) for start in range(0, rows, max(height, 1))]


def tiled_product(left: Tensor, right: Tensor, add: Tensor | None = None) -> Tensor:
    """Return left @ right + add in memory of its own; large ones are shared by threads, on a CPU.

    Tiles are of the same rows, each multiplied by one thread, however many threads there are: so
    are the bits.

    left: [n, k]; right: [k, m]; add: [m]

    >>> tiled_product(torch.tensor([[1., 2.]]), torch.tensor([[3.], [4.]]))
    tensor([[11.]])
    """
    tiles = row_tiles(len(left), right.numel())
    traced = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
    if traced or left.device.type != "cpu" or len(tiles) < 2:
        return left @ right if add is None else torch.addmm(add, left, right)
    out = left.new_empty(len(left), right.shape[1])

    def work(rows: slice) -> None:
        with torch.no_grad():  # of this thread
            if add is None:
                torch.mm(left[rows], right, out=out[rows])
            else:
                torch.addmm(add, left[rows], right, out=out[rows])

    with fixed_sums():
        spread(work, tiles)
    return out


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
