"""Ranges of rows of similar work, threads that share them, and loops compiled by numba."""

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

from evergraph.core.errors import say_once
from evergraph.core.resources import available_threads, fixed_sums
from evergraph.graphs.csr import cut

# A thread takes many ranges, so that none waits long for one that was given the hubs.
RANGES_PER_THREAD = 16
# The most entries (16 MB) of a mapped adjacency that a range keeps in memory.
MAPPED_ENTRIES = 1 << 22
# So many values are read in less time than it takes to start threads.
VALUES_WITHOUT_THREADS = 1 << 18
# Handing a part to compiled code takes some 30 microseconds, in which no other Python thread runs.
VALUES_PER_PART = 1 << 20
# Multiplications in a tile of a dense product: some milliseconds of one thread.
TILE = 1 << 27
# The least height of a tile. Smaller ones read shared data more often: 128 rows cost a tenth more.
TILE_ROWS = 256


def row_ranges(indptr: Tensor, *, count: int) -> list[slice]:
    """Cut rows into at most ``count`` ranges with similar sums of entries and rows."""
    starts = indptr.numpy()
    rows = len(starts) - 1
    total = int(starts[-1]) - int(starts[0]) + rows

    def cost_before(row: int) -> int:
        return int(starts[row]) - int(starts[0]) + row

    cuts = [bisect_left(range(rows), total * k // count, key=cost_before) for k in range(count)]
    return list(starmap(slice, pairwise(sorted({*cuts, rows}))))


def range_count(indptr: Tensor, *, mapped: bool) -> int:
    """Return the number of ranges into which to cut a product."""
    count = RANGES_PER_THREAD * available_threads()
    entries = int(indptr[-1]) - int(indptr[0])
    return max(count, -(-entries // MAPPED_ENTRIES)) if mapped else count


def spread(work: Callable[[slice], object], ranges: Iterable[slice]) -> None:
    """Process every range, on all available threads.

    These are plain threads, as the work releases Python's lock: they wait without spinning, may be
    started from several threads at once, and do not affect torch's own. An exception in one of them
    is raised here.
    """
    parts = tuple(ranges)
    remaining = iter(parts)
    errors: list[BaseException] = []

    def take() -> None:
        torch.get_num_threads()  # without this call, BLAS in a new thread uses all threads
        try:
            for part in remaining:  # each is taken once: advancing this iterator is atomic
                work(part)
        except BaseException as error:
            errors.append(error)

    # No pool of ``concurrent.futures``: it takes no more work once the main thread has ended.
    helpers = [Thread(target=take) for _ in range(min(available_threads(), len(parts)) - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


def in_parts(work: Callable[[slice], object], costs: npt.NDArray[Any], *, each: int) -> None:
    """Process all items, cut into parts of similar cost, with several threads if that is faster.

    These are Python's own threads over machine code: unlike numba's, they can be used anywhere,
    also inside other threads and after a fork.

    costs: of each item, int64 [items]; each: number of values read per unit of cost
    """
    total = int(costs.sum())
    threads = available_threads()
    if total * each <= VALUES_WITHOUT_THREADS or threads == 1:
        work(slice(0, len(costs)))
        return
    parts = min(RANGES_PER_THREAD * threads, total * each // VALUES_PER_PART + threads)
    spread(work, cut(costs, total / parts))


def row_tiles(rows: int, each: int) -> list[slice]:
    """Cut the rows of a dense product into tiles, by sizes alone; a small product is one tile.

    each: multiplications per row.

    >>> row_tiles(1000, 1 << 19)
    [slice(0, 334, None), slice(334, 668, None), slice(668, 1000, None)]
    """
    height = -(-rows // max(min(rows * each // TILE, rows // TILE_ROWS), 1))
    return [slice(start, min(start + height, rows)) for start in range(0, rows, max(height, 1))]


def tiled_product(left: Tensor, right: Tensor, add: Tensor | None = None) -> Tensor:
    """Return left @ right + add in new memory; large products are shared by threads on a CPU.

    Tiles have the same rows, each multiplied by one thread, for any number of threads, so the bits
    do not depend on it.

    left: [n, k]; right: [k, m]; add: [m]
    """
    tiles = row_tiles(len(left), right.numel())
    traced = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
    if traced or left.device.type != "cpu" or len(tiles) < 2:
        return left @ right if add is None else torch.addmm(add, left, right)
    out = left.new_empty(len(left), right.shape[1])

    def work(rows: slice) -> None:
        with torch.no_grad():  # applies to this thread
            if add is None:
                torch.mm(left[rows], right, out=out[rows])
            else:
                torch.addmm(add, left[rows], right, out=out[rows])

    with fixed_sums():
        spread(work, tiles)
    return out


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile loops over arrays to machine code, cached on disk, that releases Python's lock."""
    from numba import njit

    _announce_compiling()
    try:  # Python calls it, and C does not
        fast: Callable[..., Any] = njit(nogil=True, no_cfunc_wrapper=True, cache=True)(loop)
    except RuntimeError:  # no writable folder
        fast = njit(nogil=True, no_cfunc_wrapper=True)(loop)
    return fast


@cache
def _announce_compiling() -> None:
    """Say so, once, if code of ours is compiled: it takes seconds, the first time on a machine."""
    from numba.core import event

    class Announcer(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__.startswith("evergraph."):
                say_once("kernels", "compiling for this machine, once: it takes some seconds")

        def on_end(self, event: Any) -> None:
            """Say nothing."""

    event.register("numba:compile", Announcer())


def unsigned(array: Tensor) -> npt.NDArray[Any]:
    """Return integers as unsigned ones: an index that cannot be negative needs no check."""
    numbers = array.numpy()
    return numbers.view(np.uint64 if numbers.dtype == np.int64 else np.uint32)
