"""File locks, which the system releases when a process ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Object that holds a folder or processes until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; calling it again does nothing."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


LOCK_FILE = "lock"  # its name in the locked folder
SCRATCH = ".evergraph-backup-"  # of temporary folders: only what is copied whole needs them
_SECONDS_BEFORE_RETRY = 0.02  # seconds
_MAX_DIGITS = 20  # most digits of a process id


class FileLock(Closing):
    """Lock on a file until it is released or its process ends.

    However a process ends, the system releases its locks: a file that is left behind locks nothing
    and need not be removed. It contains the process id, for the error message only.

    path: the file, created if it does not exist; its folder must exist. refusal: makes the
    exception to raise if another process has the lock, from a description of that process, such as
    ``process 4711``. wait: wait for the other process instead.

    Attributes:
        holds: whether there is a lock. There is none if the file system cannot lock, as some
            network drives: the caller decides whether to continue.
    """

    def __init__(
        self, path: Path, refusal: Callable[[str], Exception], *, wait: bool = False
    ) -> None:
        # A file object, not a descriptor: it is also closed if the lock is never released.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._file = os.fdopen(handle, "r+b", buffering=0)
        self.path = path
        try:
            self.holds = _lock(handle, wait=wait)
        except BlockingIOError:
            holder = self._holder()
            self._file.close()
            raise refusal(holder) from None
        _open.add(self)
        if self.holds:
            with suppress(OSError):  # a full disk: the lock is held, but without the process id
                self._file.write(b"%*d\n" % (_MAX_DIGITS, os.getpid()))

    def close(self) -> None:
        """Release the lock. The file stays: another process may lock it before it is removed."""
        self._file.close()

    def _holder(self) -> str:
        number = self._file.read(_MAX_DIGITS + 1).decode("ascii", "replace").strip()
        own = " (this one)" if number == str(os.getpid()) else ""
        return f"process {number or 'unknown'}{own}"


# Locks of this process. A forked child must close its copies: otherwise it would keep the lock
# after this process has ended.
_open: WeakSet[FileLock] = WeakSet()


def _let_go() -> None:
    """Close a child's copies of locks; those of its parent are unchanged."""
    for lock in list(_open):
        lock.holds = False
        lock.close()


os.register_at_fork(after_in_child=_let_go)


def is_held(path: Path) -> bool:
    """Return whether a file is locked, without changing it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        _lock(handle, wait=False, shared=True)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _lock(handle: int, *, wait: bool, shared: bool = False) -> bool:
    """Take the lock; return whether locking is supported; raise if another process has it."""
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    for again in (True, False):
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            if not again:
                raise
            time.sleep(_SECONDS_BEFORE_RETRY)  # another process may be in ``is_held``
        except OSError:  # not supported by this file system
            return False
        else:
            return True
    return False


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside a path, and so on its disk, that is gone afterwards.

    A killed process leaves its own behind; the next one removes it (``remove_left``).
    """
    with disk_is_enough(path):
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        remove_left(path)
        made = tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=SCRATCH)
    with made as name, FileLock(Path(name, LOCK_FILE), DataError):
        yield Path(name)


def left_beside(path: Path) -> list[Path]:
    """Return the folders of ``scratch_beside`` whose processes have ended."""
    made = sorted(path.absolute().parent.glob(f"{SCRATCH}*"))
    return [each for each in made if not is_held(each / LOCK_FILE)]


def remove_left(path: Path) -> None:
    """Remove the folders of ``scratch_beside`` whose processes have ended."""
    for each in left_beside(path):
        shutil.rmtree(each, ignore_errors=True)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; the system releases the lock of a dead process.

    Where the file system cannot lock, as some network drives, this does nothing.
    """

    def refusal(_: str) -> DataError:
        return DataError(f"{folder}: another process is using it: wait for it, or stop it")

    with disk_is_enough(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK_FILE, refusal)
    with lock:
        yield
