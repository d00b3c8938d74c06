"""Atomic file writes: a file is either complete or absent."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from evergraph.core.errors import ResultsError


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
    missing = [place for place in (path, *path.absolute().parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in reversed(missing):
        sync(place.absolute().parent)


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


def check_writable(folder: Path) -> None:
    """Raise unless files can be written to a folder, which may not exist yet.

    Nothing is left behind: neither the folder nor anything in it.
    """
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    with results_written(folder):
        if not there.is_dir():
            raise NotADirectoryError(20, f"{there} is a file, not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
