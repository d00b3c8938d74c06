"""Devices, threads and peak memory."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch

from evergraph.core.checks import check_choice
from evergraph.core.errors import DeviceError

DEVICES = ("auto", "cpu", "cuda")
STATUS = Path("/proc/self/status")  # of Linux


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called ``name``; ``auto`` chooses a GPU if there is one."""
    check_choice("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("device must be 'cpu' or 'auto', not 'cuda': torch finds no CUDA device")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _work_alone() -> None:
    """Let a forked child use one thread: of torch's it has none, and would wait for them for ever.

    oneDNN asks for as many as the parent had, on Arm, and is left out.
    """
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        torch._C._set_mkldnn_enabled(False)


os.register_at_fork(after_in_child=_work_alone)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Round numbers below 1e-38 to zero on this CPU thread and on threads started within.

    Adam's moments of unused weights decay into that range, where every operation is many times
    slower on a CPU. Threads inherit the mode when they start, so enter this before any work.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # torch's default; the previous mode cannot be read


def peak_rss_bytes() -> int:
    """Return the peak resident size of this process so far; 0 if unknown."""
    if STATUS.exists():  # getrusage would include the parent process
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Multiplications that keep one thread busy for a few milliseconds. With less work per thread,
# threads would wait for each other longer than they work: decision record 30.
WORK_A_THREAD = 50_000_000
_SHARED: ContextVar[int | None] = ContextVar("threads that share pieces of work", default=None)


def available_threads() -> int:
    """Return the number of threads for work that is split without splitting a sum."""
    return _SHARED.get() or torch.get_num_threads()


@contextmanager
def fixed_sums() -> Iterator[None]:
    """Make every sum the same, bit for bit, for any number of threads.

    Torch and its BLAS split long sums by the number of threads, so within this context they have
    one. The other threads remain available for work in pieces whose size does not depend on their
    number, see ``evergraph.graphs.kernels.row_ranges``.

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


def worthwhile_threads(work: int | None) -> AbstractContextManager[None]:
    """Return a context in which torch has as many threads as work of this size is worth.

    It depends only on sizes, never on time: the last bits of a sum may depend on the number of
    threads.

    work: multiplications per operation; None if unknown, which keeps all threads.
    """
    if work is None:
        return exactly_threads(None)
    return exactly_threads(min(torch.get_num_threads(), max(1, work // WORK_A_THREAD)))


def sums_by(threads: int | None) -> AbstractContextManager[None]:
    """Return ``exactly_threads``, or ``fixed_sums`` if no number is given."""
    return fixed_sums() if threads is None else exactly_threads(threads)


@contextmanager
def exactly_threads(count: int | None) -> Iterator[None]:
    """Set torch's number of threads within this context, in this thread; None changes nothing.

    For results that must be the same, bit for bit, in every process and on every machine.

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
