"""Choosing where tensors live, and telling how much memory was used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
