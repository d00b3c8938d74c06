"""One writer at a time."""

from __future__ import annotations

import os
from pathlib import Path

from evergraph.core.errors import LockedError, ResourceError

FILE = "lock"


class FolderLock:
    """A lock that lasts as long as its file is open, so that a process that dies gives it back.

    The file says which process holds it. What it says is for the message only: a file that was left
    behind locks nobody out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = FolderLock(Path(folder))
    ...     FolderLock(Path(folder))
    Traceback (most recent call last):
    evergraph.core.errors.LockedError: ... is being written to by process ... (this one): ...
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _locked(self._handle):
            holder = os.pread(self._handle, 21, 0).decode("ascii", "replace").strip()
            os.close(self._handle)
            raise LockedError(
                f"{folder} is being written to by process {holder or 'unknown'}"
                f"{' (this one)' if holder == str(os.getpid()) else ''}: stop that one, or open "
                "the folder with readonly=True"
            )
        os.pwrite(self._handle, b"%20d\n" % os.getpid(), 0)  # in place: a full disk has room

    def release(self) -> None:
        """Give the lock back. The file stays: it may be another's before it could be removed."""
        os.close(self._handle)


def _locked(handle: int) -> bool:
    """Whether the lock could be had."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        raise ResourceError(
            "a learner's folder can be written to only where fcntl.flock can lock it, which this "
            "system does not have: open it with readonly=True"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
