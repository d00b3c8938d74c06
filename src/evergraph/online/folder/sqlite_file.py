"""A journal as a SQLite file: its tables, opening it, changing it whole or not at all.

Layout 3 has ``batch`` beside a delta, the number of the first of the deltas that it was applied
with, and ``time`` beside a key, when its delta was written. ``start`` holds a number where the
journal began with a snapshot: that of the last delta of this. SQLite keeps the number of the layout
(``user_version``); earlier ones have none, and no batches: every delta was applied by itself.

Layout 4 has four tables more. ``costs``: the seconds that a batch took; this version writes none.
``set_aside``: deltas that could not be applied. ``rewritten``: numbers from which on the journal is
not what it was, for readers that know them already. ``trying``: the batch that a recovery is
applying.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from evergraph.core.errors import DataError, ResourceError

_FULL = "database or disk is full"  # SQLite's sentence for SQLITE_FULL
_LOOK = "SELECT 1 FROM sqlite_master LIMIT 1"
_WAIT = 10.0  # seconds to wait for another process, which may be looking through the WAL
LAYOUT = 4
BATCHES = 3  # the first layout that has them
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS deltas (
        seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL, time REAL NOT NULL, batch INTEGER)""",
    """CREATE TABLE IF NOT EXISTS keys (
        key BLOB PRIMARY KEY, seq INTEGER NOT NULL, digest BLOB NOT NULL, result TEXT, time REAL)
        WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS start (seq INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS keys_by_seq ON keys (seq)",
    "CREATE TABLE IF NOT EXISTS costs (seq INTEGER PRIMARY KEY, seconds REAL NOT NULL)",
    """CREATE TABLE IF NOT EXISTS set_aside (
        seq INTEGER NOT NULL, key BLOB, bytes BLOB NOT NULL, why TEXT NOT NULL,
        time REAL NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS rewritten (seq INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS trying (seq INTEGER NOT NULL)",
)
_LATER = {"deltas": "batch INTEGER", "keys": "time REAL"}


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open a file whose commits wait for the disk; make it if there is none.

    Room of dropped rows can be given back, and is overwritten: what was forgotten may lie in it.
    """
    connection = _connection(f"{path.absolute().as_uri()}?mode=rwc")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # works only before there is anything
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a file that another process may be writing, also where we may not write at all.

    There the files that belong to the WAL cannot be made. Nobody writes while they are missing, so
    the file may then be taken as it is; or a copy, where it has a WAL and the rest is missing.
    """
    address = path.absolute().as_uri()
    wal, index = (path.with_name(f"{path.name}-{each}") for each in ("wal", "shm"))
    connection = _connection(f"{address}?mode=ro")
    try:
        connection.execute(_LOOK).fetchall()
        return connection
    except sqlite3.OperationalError:
        connection.close()
        if not path.exists() or index.exists():
            raise
        return _copied(path, wal) if wal.exists() else _connection(f"{address}?mode=ro&immutable=1")


def _copied(path: Path, wal: Path) -> sqlite3.Connection:
    """Open a copy of a file and its WAL, which has no name any more when this returns."""
    try:
        with tempfile.TemporaryDirectory(prefix="evergraph-") as place:
            for each in (path, wal):
                shutil.copyfile(each, Path(place, each.name))
            address = Path(place, path.name).as_uri()
            with closing(_connection(f"{address}?mode=rw")) as copy:
                copy.execute("PRAGMA journal_mode = DELETE")  # takes in what is in the WAL
            connection = _connection(f"{address}?mode=ro&immutable=1")
            connection.execute(_LOOK).fetchall()
            return connection
    except OSError as error:
        raise sqlite3.OperationalError(f"its -wal needs a copy elsewhere: {error}") from error


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


def rewrite(connection: sqlite3.Connection) -> bool:
    """Write the file anew with nothing but its rows; return whether the WAL could be emptied."""
    connection.execute("VACUUM")
    return emptied_wal(connection)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table of that name."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def disk_is_full(error: sqlite3.Error) -> bool:
    """Whether that is what SQLite says."""
    return str(error) == _FULL


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Say in one sentence of ours what is wrong with a file."""
    try:
        yield
    except sqlite3.Error as error:
        if disk_is_full(error):
            raise ResourceError(f"{path}: the disk is full") from error
        # An operational error is of the machine (rights, another process), others are of the file.
        damaged = not isinstance(error, sqlite3.OperationalError)
        advice = ": put it back from a backup" if damaged else ""
        raise DataError(f"{path}: cannot be used ({error}){advice}") from error


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
            if column.split()[0] not in _columns(connection, table):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        connection.execute("UPDATE keys SET time = ? WHERE time IS NULL", (time.time(),))
        connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
