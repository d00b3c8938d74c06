"""Where things are computed, by how many threads, and how much memory it took."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch

from evergraph.core.errors import DeviceError, UnknownNameError

DEVICES = ("auto", "cpu", "cuda")
STATUS = Path("/proc/self/status")  # of Linux


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called ``name``; ``auto`` takes a GPU where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name not in DEVICES:
        raise UnknownNameError("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            "device 'cuda' was asked for, but torch sees no CUDA device here: use 'cpu' or 'auto'"
        )
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Round numbers below 1e-38 to zero on this CPU thread, and on those started meanwhile.

    Adam's moments of idle weights fade into that range, where a CPU takes many times as long for
    every operation. Threads inherit the mode when they start, so it should come before any work.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # torch's default; it cannot be asked what it was


def peak_rss_bytes() -> int:
    """Return the largest resident size this process has had so far; 0 where nobody tells."""
    if STATUS.exists():  # getrusage would count the process that this one was started from
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return _peak_by_psutil()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _peak_by_psutil() -> int:
    try:
        import psutil
    except ImportError:
        return 0
    return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))  # Windows's alone


# Multiplications that keep one thread busy for a few milliseconds, in which threads that meet at
# the end of every operation do not wait longer for each other than they work: decision record 30.
WORK_A_THREAD = 50_000_000

_SHARED: ContextVar[int | None] = ContextVar("threads that share pieces of work", default=None)


def available_threads() -> int:
    """Return how many threads may share work that is cut where no sum is."""
    return _SHARED.get() or torch.get_num_threads()


@contextmanager
def fixed_sums() -> Iterator[None]:
    """Let every sum come out the same, bit for bit, however many threads there are.

    Torch and its BLAS cut long sums into as many parts as they have threads, so meanwhile they have
    one. All others stay at hand for work in pieces whose size does not depend on them, see
    ``evergraph.graphs.kernels.row_ranges``.

    >>> with exactly_threads(2), fixed_sums():
    ...     torch.get_num_threads(), available_threads()
    (1, 2)
    """
    before = _SHARED.set(available_threads())
    try:
        with exactly_threads(1):
            yield
    finally:
        _SHARED.reset(before)


def threads_for(work: int, available: int) -> int:
    """Return how many of the available threads so many multiplications are worth.

    It depends on sizes alone, never on a clock: the last bits of a sum may depend on how many
    threads made it.

    >>> threads_for(10_000, 8), threads_for(120_000_000, 8), threads_for(10**10, 8)
    (1, 2, 8)
    """
    return min(available, max(1, work // WORK_A_THREAD))


@contextmanager
def worthwhile_threads(work: int | None) -> Iterator[None]:
    """Let torch use, meanwhile, no more threads than pieces of work of this size are worth.

    work: multiplications in a piece; None for what cannot be told, which keeps all threads.
    """
    with exactly_threads(None if work is None else threads_for(work, torch.get_num_threads())):
        yield


def sums_by(threads: int | None) -> AbstractContextManager[None]:
    """Return ``exactly_threads``, and ``fixed_sums`` where no number is given."""
    return fixed_sums() if threads is None else exactly_threads(threads)


@contextmanager
def exactly_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads meanwhile, in this thread; None: as many as it does anyway.

    For what must come out the same, bit for bit, whoever computes it and wherever.

    >>> with exactly_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
