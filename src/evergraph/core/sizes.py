"""Sizes in bytes, free space on disk and in memory, and whether glibc keeps freed memory."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from evergraph.core.errors import ConfigurationError, ResourceError

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
# Options of ``mallopt``.
_OPTIONS = {"trim_threshold": -1, "top_pad": -2, "mmap_threshold": -3, "arenas": -8}


def parse_size(text: str | int) -> int:
    """Return the number of bytes of a text such as ``4GB``, ``512MiB`` or ``1e9``."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)(e\d+)?\s*([kmgt]?)(i?)b?\s*", str(text), re.I)
    if match is not None and (match[3] or not match[4]):
        unit = (1024 if match[4] else 1000) ** " kmgt".index(match[3].lower() or " ")
        size = int(float(f"{match[1]}{match[2] or ''}") * unit)
        if size > 0:
            return size
    message = f"memory limit must be a size such as 4GB or 512MiB, above 0, not {text!r}"
    raise ConfigurationError(message)


def shown(size: float) -> str:
    """Format a number of bytes in a readable unit.

    >>> shown(2_450_000_000), shown(12_000_000), shown(42_099)
    ('2.5 GB', '12 MB', '42 kB')
    """
    if 0 < size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def check_room(folder: Path, needed: float, purpose: str, *, remedy: str = "make room") -> None:
    """Raise unless ``needed`` bytes are free on the disk of a folder, which may not exist yet.

    >>> check_room(Path("/"), 1e18, "this")
    Traceback (most recent call last):
    evergraph.core.errors.ResourceError: /: this takes about 1000000000.0 GB of disk, but only ...
    """
    free = shutil.disk_usage(nearest_folder(folder)).free
    if needed > free:
        raise ResourceError(
            f"{folder}: {purpose} takes about {shown(needed)} of disk, but only {shown(free)} are "
            f"free, {shown(needed - free)} too few: {remedy}"
        )


def nearest_folder(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(ancestor for ancestor in (folder, *folder.absolute().parents) if ancestor.is_dir())


def free_memory() -> int:
    """Return the bytes that can still be allocated: the least of machine, group and process.

    For the machine this is memory that is free or can be freed at once. For a control group, by
    which containers and service managers limit memory, it is the limit less the memory in use, not
    counting cached files. For the process it is what ``ulimit -v`` and ``ulimit -d`` leave.
    """
    import psutil

    limits = [int(psutil.virtual_memory().available), *_left_to_groups()]
    used = psutil.Process().memory_info()
    for limit_kind, name in ((resource.RLIMIT_AS, "vms"), (resource.RLIMIT_DATA, "data")):
        limit = resource.getrlimit(limit_kind)[0]
        if limit != resource.RLIM_INFINITY and hasattr(used, name):
            limits.append(int(limit) - int(getattr(used, name)))
    return max(min(limits), 0)


def _left_to_groups() -> Iterator[int]:
    """Yield the bytes left in each control group of this process, innermost first."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
        name = next(line[3:] for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):  # not Linux, or control groups of another version
        return
    inner = _CGROUPS / name.strip("/")
    for folder in (inner, *inner.parents):
        if not folder.is_relative_to(_CGROUPS):
            return
        try:
            limit = (folder / "memory.max").read_text().strip()
            used = int((folder / "memory.current").read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            continue
        if limit != "max":
            cached = [int(line.split()[1]) for line in lines if line.startswith("inactive_file ")]
            yield int(limit) - used + sum(cached)


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
