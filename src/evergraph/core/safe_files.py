"""Files that other processes and power cuts leave whole: atomic writes, locks, and full disks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar
from weakref import WeakSet

from evergraph.core.errors import DataError, ResourceError, ResultsError


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Open a file next to ``path`` for writing, and rename it to ``path`` when it is complete.

    If writing fails, ``path`` is unchanged and no temporary file is left. Afterwards the file
    survives a power cut.
    """
    make_folders(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    aside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave the new name on empty blocks
        aside.chmod(0o644)  # mkstemp allows the owner only; a cache may be shared
        aside.replace(path)
        sync(path.parent)  # nor the old name, after the write was reported as done
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk, where the file system can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def make_folders(path: Path) -> None:
    """Make a folder and its missing parents; afterwards they survive a power cut.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_folders(Path(folder, "a", "b"))
    ...     Path(folder, "a", "b").is_dir()
    True
    """
    missing = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.absolute().parent)


@contextmanager
def results_written(path: Path, *, remedy: str = "") -> Iterator[None]:
    """Raise one sentence if results cannot be written, with the reason and a remedy.

    >>> with results_written(Path("runs"), remedy="make room"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    evergraph.core.errors.ResultsError: runs cannot be written: No space left on device: make room
    """
    try:
        yield
    except OSError as error:
        hint = f": {remedy}" if remedy else ""
        raise ResultsError(f"{path} cannot be written: {error.strerror or error}{hint}") from error


@contextmanager
def disk_is_enough(path: Path) -> Iterator[None]:
    """Raise one sentence if the disk is full, or if nothing can be written there."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ResourceError(f"{path}: the disk is full ({error.strerror})") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR):
            raise ResourceError(f"{path}: cannot be written ({error.strerror})") from error
        raise


def check_writable(folder: Path) -> None:
    """Raise unless files can be written to a folder, which may not exist yet.

    Nothing is left behind: neither the folder nor anything in it.
    """
    folders = (folder, *folder.absolute().parents)
    existing = next(path for path in folders if path.exists())
    with results_written(folder):
        if not existing.is_dir():
            raise NotADirectoryError(20, f"{existing} is a file, not a folder")
        with tempfile.TemporaryFile(dir=existing):
            pass


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
SCRATCH = ".evergraph-backup-"  # prefix of the temporary folders of ``scratch_beside``
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
        note = " (this one)" if number == str(os.getpid()) else ""
        return f"process {number or 'unknown'}{note}"


# Locks of this process. A forked child must close its copies: otherwise it would keep the lock
# after this process has ended.
_open: WeakSet[FileLock] = WeakSet()


def _close_inherited_locks() -> None:
    """Close a child's copies of locks; those of its parent are unchanged."""
    for lock in list(_open):
        lock.holds = False
        lock.close()


os.register_at_fork(after_in_child=_close_inherited_locks)


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
    for may_retry in (True, False):
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            if not may_retry:
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
        scratch, lock = _locked_scratch(path.absolute().parent)
    with scratch as name, lock:
        yield Path(name)


def _locked_scratch(parent: Path) -> tuple[tempfile.TemporaryDirectory[str], FileLock]:
    while True:
        scratch = tempfile.TemporaryDirectory(
            dir=parent, prefix=SCRATCH, ignore_cleanup_errors=True
        )
        # Before it is locked, another process may take it for one that was left, and remove it.
        with suppress(FileNotFoundError, DataError):
            lock = FileLock(Path(scratch.name, LOCK_FILE), DataError)
            if lock.path.exists():
                return scratch, lock
            lock.close()
        scratch.cleanup()


def left_beside(path: Path) -> list[Path]:
    """Return the folders of ``scratch_beside`` whose processes have ended."""
    folders = sorted(path.absolute().parent.glob(f"{SCRATCH}*"))
    return [folder for folder in folders if not is_held(folder / LOCK_FILE)]


def remove_left(path: Path) -> None:
    """Remove the folders of ``scratch_beside`` whose processes have ended."""
    for folder in left_beside(path):
        # Locked, as it may be a new one, whose process is about to lock it.
        with suppress(OSError, DataError), FileLock(folder / LOCK_FILE, DataError):
            shutil.rmtree(folder, ignore_errors=True)


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
