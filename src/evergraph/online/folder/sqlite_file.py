"""A journal as a SQLite file: its tables, opening it, changing it whole or not at all.

``deltas`` has a row a delta, with ``batch``, the number of the first of the deltas that it was
applied with. ``keys`` has their keys, what came of them, and when each was written. ``start`` holds
a number where the journal began with a snapshot: that of the last delta of this. ``set_aside`` has
deltas that could not be applied. ``rewritten`` has numbers from which on the journal is not what it
was, for readers that know them already; ``trying`` the batch that a recovery is applying.

This is layout 4, a number that SQLite keeps (``user_version``). Earlier ones lack tables and
columns: who writes adds them, who reads does so in a copy. So all other code knows one layout.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError, ResourceError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_TRIED = 1 << 26  # bytes, to find out whether there is room
_FULL = "database or disk is full"  # SQLite's sentence for SQLITE_FULL
_WAIT = 10.0  # seconds to wait for another process, which may be looking through the WAL
_COPY = "copy-of-a-journal.sqlite"
LAYOUT = 4
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS deltas (
        seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL, time REAL NOT NULL, batch INTEGER)""",
    """CREATE TABLE IF NOT EXISTS keys (
        key BLOB PRIMARY KEY, seq INTEGER NOT NULL, digest BLOB NOT NULL, result TEXT, time REAL)
        WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS start (seq INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS keys_by_seq ON keys (seq)",
    # Nobody writes it any more; the version before, which has the same layout, expects it.
    "CREATE TABLE IF NOT EXISTS costs (seq INTEGER PRIMARY KEY, seconds REAL NOT NULL)",
    """CREATE TABLE IF NOT EXISTS set_aside (
        seq INTEGER NOT NULL, key BLOB, bytes BLOB NOT NULL, why TEXT NOT NULL,
        time REAL NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS rewritten (seq INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS trying (seq INTEGER NOT NULL)",
)
_LATER = {"deltas": "batch INTEGER", "keys": "time REAL"}


class SqliteFile:
    """A file of one process, or one that is read while another process writes to it.

    Whatever SQLite finds wrong is raised as an error of ours; see ``sound``.

    Args:
        path: the file.
        readonly: read what another process writes.

    Attributes:
        connection: to the file, or to a copy of it.
    """

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path
        self._seen = _stamps(path)
        with sound(path):
            self.connection = open_for_reading(path) if readonly else open_for_writing(path)
            (_, _, opened) = self.connection.execute("PRAGMA database_list").fetchone()
        self._is_copy = Path(opened).name == _COPY

    def one(self, query: str, *values: object) -> Any:
        """Return the first row of an answer, None where there is none."""
        with sound(self.path):
            return self.connection.execute(query, values).fetchone()

    def number(self, query: str, *values: object) -> int:
        """Return a single number."""
        return int(self.one(query, *values)[0])

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return all rows of an answer."""
        with sound(self.path):
            return self.connection.execute(query, values).fetchall()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Commit what is done inside, or nothing of it."""
        with sound(self.path), transaction(self.connection):
            yield self.connection

    def is_outdated(self) -> bool:
        """Whether this is a copy, and the file itself has been written to since."""
        return self._is_copy and self._seen != _stamps(self.path)

    def close(self) -> None:
        """Close the file, also on a disk that is gone."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()


def _stamps(path: Path) -> list[tuple[int, int]]:
    """Return what changes with a file and its WAL."""
    files = (path, path.with_name(f"{path.name}-wal"))
    found = [file.stat() for file in files if file.exists()]
    return [(each.st_mtime_ns, each.st_size) for each in found if each.st_size]


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open a file whose commits wait for the disk; make it if there is none.

    Room of dropped rows can be given back, and is overwritten: what was forgotten may lie in it.
    """
    connection = _connection(f"{path.absolute().as_uri()}?mode=rwc")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # works only before there is anything
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    bring_up_to_date(connection)
    # After a flush that failed, what a process before us left in the WAL may be in the system's
    # memory alone: it is written anew. A disk that is full or fails says so with the next delta.
    with contextlib.suppress(sqlite3.OperationalError):
        empty_wal(connection)
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a file that another process may be writing, also where we may not write at all.

    There the files that belong to the WAL cannot be made. Nobody writes while they are missing, so
    the file may then be taken as it is; or a copy, where it has a WAL and the rest is missing. A
    file of an earlier layout is copied too, and the copy is brought up to date.
    """
    address = path.absolute().as_uri()
    wal, index = (path.with_name(f"{path.name}-{each}") for each in ("wal", "shm"))
    connection = _connection(f"{address}?mode=ro")
    try:
        layout = layout_of(connection)
    except sqlite3.OperationalError:
        connection.close()
        if not path.exists() or index.exists():
            raise
        if wal.exists():
            return _copied(path)
        connection = _connection(f"{address}?mode=ro&immutable=1")
        layout = layout_of(connection)
    if layout == LAYOUT:
        return connection
    with closing(connection):
        return _copied(connection)


def _copied(source: Path | sqlite3.Connection) -> sqlite3.Connection:
    """Open a copy that is up to date, and has no name any more when this returns.

    source: a file that nobody writes to, with its WAL; or a connection to one that may be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="evergraph-") as place:
            path = Path(place, _COPY)
            if isinstance(source, Path):
                for end in ("", "-wal"):
                    shutil.copyfile(f"{source}{end}", f"{path}{end}")
            with closing(_connection(f"{path.as_uri()}?mode=rwc")) as own:
                if isinstance(source, sqlite3.Connection):
                    source.backup(own)
                own.execute("PRAGMA journal_mode = DELETE")  # takes in what is in the WAL
                bring_up_to_date(own)
            connection = _connection(f"{path.as_uri()}?mode=ro&immutable=1")
            layout_of(connection)  # opens the file
            return connection
    except OSError as error:
        raise sqlite3.OperationalError(f"it needs a copy elsewhere: {error}") from error


def _connection(address: str) -> sqlite3.Connection:
    # Transactions are ours to begin. Whoever shares a file between threads does so under a lock.
    return sqlite3.connect(
        address, uri=True, isolation_level=None, check_same_thread=False, timeout=_WAIT
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, or nothing of it.

    >>> connection = sqlite3.connect(":memory:", isolation_level=None)
    >>> with transaction(connection):
    ...     _ = connection.execute("CREATE TABLE numbers (n)")
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # after some failures SQLite has left it already
            connection.execute("ROLLBACK")


def empty_wal(connection: sqlite3.Connection) -> None:
    """Move all that is in the WAL to the file proper, unless another process is just reading it."""
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {1000 * _WAIT:.0f}")


def emptied_wal(connection: sqlite3.Connection) -> bool:
    """Empty the WAL; wait for others that read, and return whether they ended in time."""
    # With nothing in it, who reads the file proper would not be noticed, and be in the way later.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Say in one sentence of ours what is wrong with a file."""
    try:
        yield
    except sqlite3.Error as error:
        if str(error) == _FULL:
            raise ResourceError(f"{path}: the disk is full") from error
        # An operational error is of the machine (rights, another process), others are of the file.
        damaged = not isinstance(error, sqlite3.OperationalError)
        advice = ": put it back from a backup" if damaged else ""
        raise DataError(f"{path}: cannot be used ({error}){advice}") from error


def has_no_room(path: Path, size: int, error: sqlite3.Error) -> bool:
    """Whether the WAL of a file could not grow by so many bytes, after an error.

    SQLite says "disk I/O error" where a quota or the largest size of a file is reached, as it does
    where the disk is broken. So the same is tried with a file beside, which is removed again.
    """
    if str(error) == _FULL:
        return True
    tried = bytes(min(max(size, 1), MOST_TRIED))
    wal = path.with_name(f"{path.name}-wal")
    try:
        end = wal.stat().st_size if wal.exists() else 0
        with tempfile.TemporaryFile(dir=path.parent) as file:
            # What lies before the end takes no room: nothing is written there.
            return os.pwrite(file.fileno(), tried, end) < len(tried)
    except OSError as failure:
        return failure.errno in NO_ROOM


def layout_of(connection: sqlite3.Connection) -> int:
    """Return the layout of a journal, 0 for those that have no number; refuse later ones."""
    layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if layout > LAYOUT:
        raise DataError(
            f"the journal is of layout {layout}, this version of evergraph reads {LAYOUT} and "
            "earlier ones: open it with the version that wrote it"
        )
    return layout


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Make the tables, or add what those of earlier versions lack.

    When the deltas of keys there were written is not known: they count as written now.
    """
    if layout_of(connection) == LAYOUT:
        return
    with transaction(connection):
        for statement in _SCHEMA:
            connection.execute(statement)
        for table, column in _LATER.items():
            known = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if column.split()[0] not in known:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        connection.execute("UPDATE keys SET time = ? WHERE time IS NULL", (time.time(),))
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
