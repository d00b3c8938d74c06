"""Whether glibc keeps freed memory or returns it to the system; other systems decide themselves."""

from __future__ import annotations

import ctypes
import os
import sys

# Options of ``mallopt``.
_OPTIONS = {"trim_threshold": -1, "top_pad": -2, "mmap_threshold": -3, "arenas": -8}


def keep_freed_memory() -> None:
    """Let glibc reuse freed blocks of up to 32 MB instead of returning them to the system.

    Otherwise every array of a few megabytes comes as new pages, which the system clears first: a
    quarter of the CPU time of ``auto``. Up to 1 GB stays allocated, so a process with a memory
    limit should not call this. Values set in the environment remain.
    """
    _set(mmap_threshold=1 << 25, trim_threshold=1 << 30, top_pad=1 << 26)


def return_freed_memory() -> None:
    """Have glibc return freed blocks of 1 MB or more to the system, and keep few pools of others.

    For a process that runs for long: by default every thread gets a pool of its own, and after some
    large arrays up to 64 MB of freed memory stay in each. To be called before threads begin. Values
    set in the environment remain.
    """
    _set(mmap_threshold=1 << 20, trim_threshold=1 << 20, arenas=2)


def _set(**options: int) -> None:
    if sys.platform != "linux" or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc only
        for name, value in options.items():
            library.mallopt(_OPTIONS[name], value)
