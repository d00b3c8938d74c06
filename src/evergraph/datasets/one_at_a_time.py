"""A folder in which only one process works at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.core.file_lock import FILE, FileLock
from evergraph.core.mapped import disk_is_enough


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
        lock = FileLock(folder / FILE, refusal)
    with lock:
        yield
