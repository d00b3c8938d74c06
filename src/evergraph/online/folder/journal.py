"""The journal of a learner: every delta it was given, in a SQLite file.

A delta that ``append`` returned for survives the end of the process and of the machine: the file is
in WAL mode with ``synchronous=FULL``, which waits for the disk at every commit.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evergraph.core.errors import DataError, KeyReusedError, ResourceError
from evergraph.online.codecs.delta_bytes import digest_of, is_same
from evergraph.online.folder.sqlite_file import (
    disk_is_full,
    empty_wal,
    open_for_reading,
    open_for_writing,
    sound,
    transaction,
)

JOURNAL_FILE = "journal.sqlite"
STEP = 1 << 22  # bytes of deltas dropped at a time, while others wait
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS deltas (
        seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL, time REAL NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS keys (
        key BLOB PRIMARY KEY, seq INTEGER NOT NULL, digest BLOB NOT NULL, result TEXT)
        WITHOUT ROWID""",
)


@dataclass(frozen=True)
class Known:
    """A delta whose key was used before.

    Attributes:
        seq: which one it was.
        result: what was noted for it with ``keep_result``, None if nothing was yet.
    """

    seq: int
    result: str | None


class Journal:
    """Deltas numbered 1, 2, ... without a gap, and the keys of all there ever were.

    Deltas that snapshots hold can be dropped from its start. Keys stay, with what came of them, so
    that a delta that is sent again is known again.

    Args:
        path: the SQLite file.
        readonly: read what another process writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, JOURNAL_FILE))
    ...     journal.append(1, b"...", key="a")
    ...     journal.last(), list(journal.after(0))
    ...     journal.close()
    (1, [(1, b'...')])
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.path = path
        self.readonly = readonly
        self._results: dict[str, str] = {}  # noted, and not yet written
        with sound(path):
            self._connection = open_for_reading(path) if readonly else _writable(path)

    def append(self, seq: int, data: bytes, *, key: str | None = None) -> None:
        """Write a delta down; when this returns, the disk has it.

        Raises ``ResourceError`` if the disk is full; nothing is written then. After any other error
        of SQLite it is not known whether the delta was written.
        """
        try:
            with transaction(self._connection):
                row = (seq, data, time.time())
                self._connection.execute("INSERT INTO deltas VALUES (?, ?, ?)", row)
                self._write_key(key, seq, data)
                self._write_results()
        except sqlite3.OperationalError as error:
            if not disk_is_full(error):
                raise
            raise ResourceError(
                f"{self.path}: the disk is full: delta {seq} was not taken in"
            ) from error
        self._results.clear()

    def _write_key(self, key: str | None, seq: int, data: bytes) -> None:
        if key is not None:
            row = (_blob(key), seq, digest_of(data))
            self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, NULL)", row)

    def known(self, key: str, data: bytes) -> Known | None:
        """Return the delta that had a key before; raise if it was another one than ``data``."""
        query = "SELECT seq, digest, result FROM keys WHERE key = ?"
        with sound(self.path):
            row = self._connection.execute(query, (_blob(key),)).fetchone()
        if row is None:
            return None
        if not is_same(data, row[1]):
            raise KeyReusedError(
                f"the key {key!r} belongs to delta {row[0]}, which had other contents: "
                "give every delta a key of its own"
            )
        return Known(row[0], self._results.get(key, row[2]))

    def last_key(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, None where there is none."""
        first = _blob(prefix)
        query = "SELECT key FROM keys WHERE key >= ? AND key < ? ORDER BY seq DESC LIMIT 1"
        with sound(self.path):
            row = self._connection.execute(query, (first, first + b"\xff")).fetchone()
        return None if row is None else bytes(row[0]).decode("utf-8", "surrogatepass")

    def keep_result(self, key: str, result: str) -> None:
        """Note what came of a delta with a key.

        It is written with the next delta. Until then a recovery finds it by applying the delta
        again, so that nobody has to wait for the disk twice.
        """
        self._results[key] = result

    def flush(self) -> None:
        """Write down what is noted."""
        if self._results:
            with sound(self.path), transaction(self._connection):
                self._write_results()
            self._results.clear()

    def _write_results(self) -> None:
        rows = [(result, _blob(key)) for key, result in self._results.items()]
        self._connection.executemany("UPDATE keys SET result = ? WHERE key = ?", rows)

    def last(self) -> int:
        """Return the number of the last delta, 0 if there is none."""
        return self._number("SELECT coalesce(max(seq), 0) FROM deltas")

    def first(self) -> int:
        """Return the number of the first delta that is still here, 0 if there is none."""
        return self._number("SELECT coalesce(min(seq), 0) FROM deltas")

    def size_after(self, seq: int) -> int:
        """Return the bytes of the deltas after one."""
        return self._number("SELECT coalesce(sum(length(bytes)), 0) FROM deltas WHERE seq > ?", seq)

    def _number(self, query: str, *values: int) -> int:
        with sound(self.path):
            return int(self._connection.execute(query, values).fetchone()[0])

    def after(self, seq: int) -> Iterator[tuple[int, bytes]]:
        """Yield number and bytes of the deltas after one; raise where a number is missing."""
        while (row := self._next(seq)) is not None:
            if row[0] != seq + 1:
                raise DataError(
                    f"{self.path}: delta {seq + 1} is missing, the next one is {row[0]}: "
                    "put the folder back from a backup"
                )
            seq = row[0]
            yield row

    def _next(self, seq: int) -> tuple[int, bytes] | None:
        # One at a time: they may be large, and a longer look would keep the WAL from shrinking.
        query = "SELECT seq, bytes FROM deltas WHERE seq > ? ORDER BY seq LIMIT 1"
        with sound(self.path):
            row: tuple[int, bytes] | None = self._connection.execute(query, (seq,)).fetchone()
        return row

    def drop(self, until: int) -> bool:
        """Drop a few of the deltas up to a number; return whether more are left to be dropped."""
        last = self._step(until)
        with sound(self.path), transaction(self._connection):
            self._connection.execute("DELETE FROM deltas WHERE seq <= ?", (last,))
        with sound(self.path):
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute frees one page
        return last < until

    def _step(self, until: int) -> int:
        """Return up to which delta the first ones are about as large as may be dropped at once."""
        query = "SELECT seq, length(bytes) FROM deltas WHERE seq <= ? ORDER BY seq"
        total = 0
        with sound(self.path):
            for seq, size in self._connection.execute(query, (until,)):
                total += size
                if total >= STEP:
                    return int(seq)
        return until

    def tidy(self) -> None:
        """Empty the file of the WAL, in which dropped deltas still lie; later if somebody reads."""
        with sound(self.path):
            empty_wal(self._connection)

    def close(self) -> None:
        """Write down what is noted and close the file."""
        with contextlib.suppress(DataError, ResourceError):  # a recovery would find it again
            self.flush()
        self._connection.close()


def _writable(path: Path) -> sqlite3.Connection:
    connection = open_for_writing(path)
    with transaction(connection):
        for table in _SCHEMA:
            connection.execute(table)
    return connection


def _blob(key: str) -> bytes:
    # Bytes: SQLite's text cannot hold a lone surrogate, and a key from JSON may.
    return key.encode("utf-8", "surrogatepass")
