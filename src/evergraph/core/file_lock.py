"""Keeping other processes out: a lock that a process cannot leave behind."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from weakref import WeakSet

from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Something that holds a folder or processes until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; a second time does nothing."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


LOCK_FILE = "lock"  # what it is called in the folder it stands for
_MOMENT = 0.02  # seconds
_WIDTH = 20  # digits that the number of a process may have


class FileLock(Closing):
    """A lock on a file that lasts until it is released, or until the process that has it is gone.

    However a process ends, the system gives its locks back: a file that is left behind locks nobody
    out, so nobody need remove it. It says which process has the lock, for the message only.

    Args:
        path: the file, which is made where it is not there; its folder must be.
        refusal: makes the exception to raise where another has the lock, from words for who that
            is, such as ``process 4711``.
        wait: wait for the other one instead.

    Attributes:
        holds: whether there is a lock at all. There is none where the system has no ``flock``
            (Windows) or the file system cannot lock (some network drives): the caller decides
            whether to go on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileLock(Path(folder, "lock"), ValueError):
    ...         FileLock(Path(folder, "lock"), ValueError)
    Traceback (most recent call last):
    ValueError: process ... (this one)
    """

    def __init__(
        self, path: Path, refusal: Callable[[str], Exception], *, wait: bool = False
    ) -> None:
        # A file object rather than a number: it is closed too where nobody releases the lock.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
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
            with suppress(OSError):  # a full disk: the lock is had, only nobody learns by whom
                self._file.write(b"%*d\n" % (_WIDTH, os.getpid()))

    def close(self) -> None:
        """Give the lock back. The file stays: it may be another's before it could be removed."""
        self._file.close()

    def _holder(self) -> str:
        number = self._file.read(_WIDTH + 1).decode("ascii", "replace").strip()
        if number == str(os.getpid()):
            return f"process {number} (this one)"
        if not number.isdigit() or is_running(int(number)):
            return f"process {number or 'unknown'}"
        # It has ended, and left the lock to a process that it started: by a fork outside of Python.
        heirs = [pid for pid in _who_has_open(self.path) if pid != os.getpid()]
        who = f"process {heirs[0]}" if heirs else "a process"
        return f"{who}, started by process {number}, which has ended"


# Locks of this process. A child that it forks must let go of its copies: otherwise it keeps the
# lock when this process has ended, and nobody knows why.
_open: WeakSet[FileLock] = WeakSet()


def _let_go() -> None:
    """Close a child's copies of locks; those of its parent stay as they are."""
    for lock in list(_open):
        lock.holds = False
        lock.close()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_let_go)


def is_running(process: int) -> bool:
    """Whether there is a process of that number.

    >>> is_running(os.getpid())
    True
    """
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def _who_has_open(path: Path) -> list[int]:
    """Return processes that have a file open, as far as Linux tells."""
    found = []
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if place.samefile(path):
                found.append(int(place.parts[2]))
    return found


def is_held(path: Path) -> bool:
    """Whether somebody has the lock of a file, which is left as it is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileLock(Path(folder, "lock"), ValueError):
    ...         print(is_held(Path(folder, "lock")))
    ...     print(is_held(Path(folder, "lock")))
    True
    False
    """
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
    """Take the lock; return whether there is one to be had, raise where another has it."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return False
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    for again in (True, False):
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            if not again:
                raise
            time.sleep(_MOMENT)  # somebody may just be asking ``is_held``
        except OSError:  # not on this file system
            return False
        else:
            return True
    return False


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; a process that dies lets go of it.

    Where nothing can be locked, as on Windows, nobody is kept out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, one_at_a_time(Path(place)):
    ...     with one_at_a_time(Path(place)):
    ...         pass
    Traceback (most recent call last):
    evergraph.core.errors.DataError: ...: another process is at work here: wait for it, or end it
    """

    def refusal(_: str) -> DataError:
        return DataError(f"{folder}: another process is at work here: wait for it, or end it")

    with disk_is_enough(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK_FILE, refusal)
    with lock:
        yield
