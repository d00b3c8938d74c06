"""One writer at a time."""

from __future__ import annotations

from pathlib import Path

from evergraph.core.errors import LockedError, ResourceError
from evergraph.core.file_lock import FILE, FileLock
from evergraph.core.mapped import disk_is_enough

__all__ = ["FILE", "FolderLock"]


class FolderLock:
    """The lock of a learner's folder; see ``FileLock``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = FolderLock(Path(folder))
    ...     FolderLock(Path(folder))
    Traceback (most recent call last):
    evergraph.core.errors.LockedError: ... is being written to by process ... (this one): ...
    """

    def __init__(self, folder: Path) -> None:
        def refusal(holder: str) -> LockedError:
            return LockedError(
                f"{folder} is being written to by {holder}: stop that one, or open the folder with "
                "readonly=True"
            )

        with disk_is_enough(folder):
            self._lock = FileLock(folder / FILE, refusal)
        if not self._lock.holds:  # two writers would destroy what both have acknowledged
            self._lock.close()
            raise ResourceError(
                f"{folder} can be written to only where fcntl.flock can lock it, which this system "
                "or its file system cannot: open it with readonly=True"
            )

    def release(self) -> None:
        """Give the lock back."""
        self._lock.close()
