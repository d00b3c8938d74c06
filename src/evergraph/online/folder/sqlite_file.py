"""The SQLite file of a journal: its tables, opening it, transactions, and what may be wrong with it.

``deltas`` has a row per delta, with ``batch``, the number of the first delta that it was applied
together with. ``keys`` has delta keys, results and times of writing. ``start`` holds the number of
the last delta before the journal, if it began after a snapshot. ``set_aside`` has deltas that could
not be applied. ``rewritten`` has numbers from which on the journal was rewritten (all, by a purge), for
readers that have applied them; ``trying`` the batch that a recovery is applying.

SQLite stores the number of this layout as ``user_version``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError, ResourceError
from evergraph.online.codecs.delta_bytes import delta_from_bytes, digest_of

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_TRIED = 1 << 26  # bytes written to find out whether there is space
_FULL = "database or disk is full"  # SQLite's sentence for SQLITE_FULL
_WAIT = 10.0  # seconds to wait for another process, which may be reading the WAL
OnDelta = Callable[[int, int], None]  # deltas done, and how many there are
LAYOUT = 5  # 1 to 4 were never released
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS deltas (
        seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL, time REAL NOT NULL,
        batch INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS keys (
        key BLOB PRIMARY KEY, seq INTEGER NOT NULL, digest BLOB NOT NULL, result TEXT,
        time REAL NOT NULL)
        WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS start (seq INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS keys_by_seq ON keys (seq)",
    """CREATE TABLE IF NOT EXISTS set_aside (
        seq INTEGER NOT NULL, key BLOB, bytes BLOB NOT NULL, why TEXT NOT NULL,
        time REAL NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS rewritten (seq INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS trying (seq INTEGER NOT NULL)",
)


def _stats(path: Path) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(OSError):  # the WAL goes with the last process that has it open
            found[file.name] = file.stat()
    return found


def stamps(path: Path) -> list[tuple[int, int]]:
    """Return times and sizes of a file and its WAL, to detect changes."""
    return [(stat.st_mtime_ns, stat.st_size) for stat in _stats(path).values() if stat.st_size]


def inodes(path: Path) -> dict[str, tuple[int, int]]:
    """Return which files a path and that of its WAL lead to, without those that do not exist."""
    return {name: (stat.st_dev, stat.st_ino) for name, stat in _stats(path).items()}


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open a file whose commits wait for the disk; create it if necessary."""
    # The space of deleted rows is overwritten, as it may hold forgotten nodes, and can be released.
    connection = _connection(f"{path.absolute().as_uri()}?mode=rwc")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only has an effect on an empty file
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    try:
        create_tables(connection)
    except BaseException:
        connection.close()
        raise
    # If an earlier process left data in the WAL after a failed flush, it may only be in the
    # system's cache: it is written again. A full or failing disk will show with the next delta.
    with contextlib.suppress(sqlite3.OperationalError):
        empty_wal(connection)
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a file for reading that another process may write to, even on a read-only disk."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = _connection(address)
    try:
        layout_of(connection)  # opens the file
    except sqlite3.OperationalError:
        connection.close()
        # On a read-only disk the helper files of the WAL cannot be created. While they are missing
        # nobody writes.
        helpers = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
        if not path.exists() or any(map(Path.exists, helpers)):
            raise
        connection = _connection(f"{address}&immutable=1")
    return connection


def _connection(address: str) -> sqlite3.Connection:
    # No implicit transactions. Callers that share a file between threads hold a lock.
    return sqlite3.connect(
        address, uri=True, isolation_level=None, check_same_thread=False, timeout=_WAIT
    )


def empty_wal(connection: sqlite3.Connection) -> None:
    """Move the contents of the WAL to the main file, unless another process is reading it."""
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {1000 * _WAIT:.0f}")


def emptied_wal(connection: sqlite3.Connection) -> bool:
    """Empty the WAL, waiting for readers; return whether they finished in time."""
    # Write something first: with an empty WAL, readers of the main file would go unnoticed here
    # and block later.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of this library, in one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        if str(error) == _FULL:
            raise ResourceError(f"{path}: the disk is full") from error
        # Operational errors concern the machine (permissions, other processes), others the file.
        damaged = not isinstance(error, sqlite3.OperationalError)
        advice = ": restore it from a backup" if damaged else ""
        raise DataError(f"{path}: cannot be used ({error}){advice}") from error


class SqliteFile:
    """A SQLite file whose errors are raised as errors of this library; see ``sound``."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path, self.readonly = path, readonly
        with sound(path):
            self.connection = open_for_reading(path) if readonly else open_for_writing(path)

    def one(self, query: str, *values: object) -> Any:
        """Return the first row of a result, None if there is none."""
        with sound(self.path):
            return self.connection.execute(query, values).fetchone()

    def number(self, query: str, *values: object) -> int:
        """Return a single number."""
        return int(self.one(query, *values)[0])

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a result."""
        with sound(self.path):
            return self.connection.execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything done inside, or nothing; errors are those of SQLite."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:  # after some failures SQLite has rolled back already
                self.connection.execute("ROLLBACK")

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction, with errors of this library."""
        with sound(self.path), self.transaction() as connection:
            yield connection


def has_no_room(path: Path, size: int, error: sqlite3.Error) -> bool:
    """Whether an error came from a lack of space for so many more bytes in the WAL."""
    # SQLite reports "disk I/O error" both for a quota or file size limit and for a broken disk. So
    # the same write is tried on a temporary file beside it.
    if str(error) == _FULL:
        return True
    tried = bytes(min(max(size, 1), MOST_TRIED))
    wal = path.with_name(f"{path.name}-wal")
    try:
        end = wal.stat().st_size if wal.exists() else 0
        with tempfile.TemporaryFile(dir=path.parent) as file:
            # Sparse before ``end``, so only ``tried`` takes space.
            return os.pwrite(file.fileno(), tried, end) < len(tried)
    except OSError as failure:
        return failure.errno in NO_ROOM


def layout_of(connection: sqlite3.Connection) -> int:
    """Return the layout of a journal, 0 if it has no tables yet; reject others than ours."""
    layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if layout not in (0, LAYOUT):
        raise DataError(
            f"the journal is of layout {layout}, this version of evergraph reads {LAYOUT}: open it "
            "with the version that wrote it"
        )
    return layout


def foreign(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return type and name of what is in a journal beside its own tables, such as a trigger."""
    query = "SELECT type, name FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'"
    with closing(sqlite3.connect(":memory:")) as memory:
        for statement in _SCHEMA:
            memory.execute(statement)
        return sorted({*connection.execute(query)} - {*memory.execute(query)})


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables, unless they are there."""
    if layout_of(connection) == LAYOUT:
        return
    connection.execute("BEGIN IMMEDIATE")  # rolled back if it is closed before the end
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {LAYOUT}")
    connection.execute("COMMIT")


def encoded(key: str) -> bytes:
    """Return a key as bytes, since SQLite's text cannot hold a lone surrogate and JSON can."""
    return key.encode("utf-8", "surrogatepass")


def decoded(key: bytes | None) -> str | None:
    """Return the key that ``encoded`` was given; None for none."""
    return None if key is None else bytes(key).decode("utf-8", "surrogatepass")


def check_journal(path: Path, on_delta: OnDelta | None = None) -> Iterator[str]:
    """Yield the faults of a journal, a sentence each; on_delta: called after every delta."""
    if not path.exists():
        yield "is missing"
        return
    try:
        with closing(open_for_reading(path)) as connection:
            connection.execute("BEGIN")
            for (fault,) in connection.execute("PRAGMA integrity_check(3)"):
                if fault != "ok":
                    yield f"SQLite finds it damaged ({fault})"
            for kind, name in foreign(connection):
                yield f"has a {kind} {name!r}, which evergraph never writes"
            yield from _deltas(connection, on_delta)
            yield from _keys(connection)
    except (sqlite3.Error, DataError) as error:
        yield f"cannot be read ({error})"


def _deltas(connection: sqlite3.Connection, on_delta: OnDelta | None) -> Iterator[str]:
    # There must be no gap: the number of a delta that was set aside is given to the next one, or to
    # an empty delta. ``checkup`` sees that snapshots hold all deltas before the first one.
    count = int(connection.execute("SELECT count(*) FROM deltas").fetchone()[0])
    previous = previous_batch = 0
    rows = connection.execute("SELECT seq, bytes, batch FROM deltas ORDER BY seq")
    for done, (seq, data, batch_of_delta) in enumerate(rows, 1):
        if previous and seq != previous + 1:
            yield f"delta {previous + 1} is missing, the next one is {seq}"
        if batch_of_delta not in (seq, previous_batch):
            before = previous_batch or "none"
            yield f"delta {seq} belongs to batch {batch_of_delta}, and the one before it to {before}"
        try:
            delta_from_bytes(data)
        except DataError as error:
            yield f"delta {seq} cannot be read ({error})"
        previous, previous_batch = seq, batch_of_delta
        if on_delta is not None:
            on_delta(done, count)


def _keys(connection: sqlite3.Connection) -> Iterator[str]:
    query = "SELECT coalesce(max(seq), 0) FROM (SELECT seq FROM deltas UNION SELECT seq FROM start)"
    last = int(connection.execute(query).fetchone()[0])
    rows = connection.execute(
        "SELECT k.key, k.seq, k.digest, k.result, d.bytes FROM keys AS k "
        "LEFT JOIN deltas AS d ON d.seq = k.seq ORDER BY k.seq"
    )
    for key, seq, digest, result, data in rows:
        name = repr(decoded(key))
        if not 0 < seq <= last:
            yield f"key {name} is that of delta {seq}, and the journal ends with {last}"
            continue
        if data is not None and digest_of(data) != digest:
            yield f"key {name} is that of delta {seq}, which has other contents"
        try:
            right = result is None or json.loads(result)["seq"] == seq
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            yield f"the result of key {name} is not that of delta {seq}"
