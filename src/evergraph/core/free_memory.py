"""How much memory this process may still take, by whatever limits it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def free_memory() -> int:
    """Return how many bytes may still be taken: of the machine's, of the group's and of its own.

    The machine's is what is free or can be freed at once; that of a control group, by which
    containers and service managers limit what they start, is what its limit leaves beside what it
    holds, files that are only cached left out; that of the process is what ``ulimit -v`` leaves.
    """
    import psutil

    found = [int(psutil.virtual_memory().available), *_left_to_groups()]
    if (own := _left_to_process()) is not None:
        found.append(own)
    return max(min(found), 0)


def _left_to_groups() -> Iterator[int]:
    """Yield what each group leaves that this process is in, the innermost first."""
    try:
        name = next(
            line[3:] for line in _OWN_CGROUP.read_text().splitlines() if line.startswith("0::")
        )
    except (OSError, StopIteration):  # another system, or groups of another kind
        return
    inner = _CGROUPS / name.strip("/")
    for folder in (inner, *inner.parents):
        if not folder.is_relative_to(_CGROUPS):
            return
        if (left := _left_to_group(folder)) is not None:
            yield left


def _left_to_group(folder: Path) -> int | None:
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return None
        held = int((folder / "memory.current").read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):
        return None
    cached = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
    return int(limit) - held + cached


def _left_to_process() -> int | None:
    """Return what the limit of addresses leaves, None where there is none."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    import psutil

    return int(limit) - int(psutil.Process(os.getpid()).memory_info().vms)
