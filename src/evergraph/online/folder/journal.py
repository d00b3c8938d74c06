"""The journal of a learner: every delta, in a SQLite file.

Once ``write`` has returned, a delta survives a crash of the process and of the machine: the file is
in WAL mode with ``synchronous=FULL``, which waits for the disk at every commit.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from evergraph.core.errors import DataError, ResourceError
from evergraph.online.folder.journal_rows import (
    JournalEntry,
    JournalKeys,
    SetAsideDeltas,
    decoded,
    named,
)
from evergraph.online.folder.sqlite_file import (
    SqliteFile,
    emptied_wal,
    empty_wal,
    has_no_room,
    sound,
    transaction,
)

JOURNAL_FILE = "journal.sqlite"
STEP = 1 << 22  # bytes of deltas dropped in one transaction, while others wait
_NEXT = """SELECT d.seq, coalesce(d.batch, d.seq), k.key, d.bytes FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE d.seq > ? ORDER BY d.seq LIMIT 1"""
_UP_TO_A_STEP = """SELECT min(seq) FROM (
    SELECT seq, sum(length(bytes)) OVER (ORDER BY seq) AS total FROM deltas WHERE seq <= ?)
    WHERE total >= ?"""


class Journal:
    """Deltas numbered 1, 2, ... without gaps, the batches they were applied in, and their keys.

    Deltas that snapshots include can be dropped from its start. Keys are kept longer, with the
    results, so that a delta that is sent again is recognised.

    Args:
        path: the SQLite file.
        readonly: open for reading, while another process may write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, JOURNAL_FILE))
    ...     journal.append(1, b"...", key="a")
    ...     journal.last(), list(journal.after(0))
    ...     journal.close()
    (1, [JournalEntry(delta 1, 3 bytes)])
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.path = path
        self.readonly = readonly
        self._file = SqliteFile(path, readonly=readonly)
        self.keys = JournalKeys(self._file)
        self.aside = SetAsideDeltas(self._file)

    def append(self, seq: int, data: bytes, *, key: str | None = None) -> None:
        """Write a delta as a batch of its own; it is on disk when this returns."""
        self.write([JournalEntry(seq, seq, key, data)])

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Write deltas, all or none; they are on disk when this returns.

        Raises ``ResourceError`` if the disk is full, or a quota or file size limit is reached;
        nothing is written then. After any other SQLite error it is uncertain whether the deltas
        were written.
        """
        now = time.time()
        rows = [(entry.seq, entry.data, now, entry.batch) for entry in entries]
        query = "INSERT INTO deltas (seq, bytes, time, batch) VALUES (?, ?, ?, ?)"
        connection = self._file.connection
        try:
            with transaction(connection):
                connection.executemany(query, rows)
                self.keys.insert(connection, entries)
        except sqlite3.OperationalError as error:
            if not has_no_room(self.path, sum(len(entry.data) for entry in entries), error):
                raise
            verb = "was" if len(entries) == 1 else "were"
            raise ResourceError(
                f"{self.path}: the disk is full: {named(entries)} {verb} not written"
            ) from error
        self.keys.written()

    def version(self) -> int:
        """Return a number that changes when another connection has written; takes microseconds."""
        return self._file.number("PRAGMA data_version")

    def is_outdated(self) -> bool:
        """Whether this is a copy of a file that has changed since, and must be opened again."""
        return self._file.is_outdated()

    def last(self) -> int:
        """Return the number of the last delta, 0 if there is none."""
        newest = self._file.number("SELECT coalesce(max(seq), 0) FROM deltas")
        return max(newest, self._start())

    def first(self) -> int:
        """Return the number of the first delta that is or will be here; 0 in a new journal."""
        oldest = self._file.number("SELECT coalesce(min(seq), 0) FROM deltas")
        return oldest or (self._start() + 1 if self._start() else 0)

    def _start(self) -> int:
        return self._file.number("SELECT coalesce(max(seq), 0) FROM start")

    def check_unread(self) -> None:
        """Raise ``ResourceError`` while another process keeps the WAL from being emptied."""
        with sound(self.path):
            emptied = emptied_wal(self._file.connection)
        if not emptied:
            raise ResourceError(
                f"{self.path}: another process reads it, so erased data would stay in its -wal "
                "file: end that process, and try again; nothing was changed"
            )

    def begin_anew(self, seq: int, *, keys: bool) -> bool:
        """Drop all deltas, and continue after one that only a snapshot includes.

        keys: whether to drop keys as well. Returns whether the file and its WAL hold nothing of the
        old contents; the WAL cannot be emptied while another process reads it.
        """
        self.keys.flush()
        with self._file.change() as connection:
            for table in ("deltas", "start", "set_aside", *(["keys"] if keys else [])):
                connection.execute(f"DELETE FROM {table}")
            connection.execute("INSERT INTO start VALUES (?)", (seq,))
        return self._rewrite()

    def _rewrite(self) -> bool:
        """Rewrite the file with its rows only; return whether the WAL is empty, too."""
        with sound(self.path):
            self._file.connection.execute("VACUUM")
            return emptied_wal(self._file.connection)

    def last_written(self, after: int) -> int:
        """Return the number of the first delta, later than ``after``, of the last write.

        Deltas written together have the same time. 0 if there is no delta later than ``after``.
        """
        newest = "SELECT time FROM deltas ORDER BY seq DESC LIMIT 1"
        query = f"SELECT coalesce(min(seq), 0) FROM deltas WHERE seq > ? AND time = ({newest})"
        return self._file.number(query, after)

    def size_after(self, seq: int) -> int:
        """Return the size of the deltas after ``seq``, in bytes."""
        query = "SELECT coalesce(sum(length(bytes)), 0) FROM deltas WHERE seq > ?"
        return self._file.number(query, seq)

    def batches_after(self, seq: int) -> Iterator[list[JournalEntry]]:
        """Yield the deltas after ``seq`` in their original batches.

        A batch is written as a whole, so all of its deltas are there, or none.
        """
        for batch, entries in groupby(self.after(seq), key=attrgetter("batch")):
            if batch <= seq:
                raise DataError(
                    f"{self.path}: delta {seq + 1} belongs to batch {batch}, so a replay cannot "
                    f"start after delta {seq}"
                )
            yield list(entries)

    def after(self, seq: int) -> Iterator[JournalEntry]:
        """Yield the deltas after ``seq``; raise if a number is missing."""
        # One at a time: they may be large, and a long read would keep the WAL from shrinking.
        while (row := self._file.one(_NEXT, seq)) is not None:
            found, batch, key, data = row
            if found != seq + 1:
                raise DataError(
                    f"{self.path}: delta {seq + 1} is missing, the next one is {found}: "
                    "restore the folder from a backup"
                )
            seq = found
            yield JournalEntry(seq, batch, None if key is None else decoded(key), data)
        if seq < self._start():  # purged since: a snapshot includes the next deltas
            raise DataError(
                f"{self.path}: delta {seq + 1} is missing, a snapshot up to {self._start()} has it"
            )

    def drop(self, until: int) -> bool:
        """Drop a few of the deltas up to a number; return whether there are more to drop."""
        (enough,) = self._file.one(_UP_TO_A_STEP, until, STEP)
        last = until if enough is None else int(enough)
        with self._file.change() as connection:
            connection.execute("DELETE FROM deltas WHERE seq <= ?", (last,))
        with sound(self.path):  # executescript, since execute would free a single page only
            self._file.connection.executescript("PRAGMA incremental_vacuum")
        return last < until

    def tidy(self) -> None:
        """Empty the WAL, which still holds dropped deltas; deferred while another process reads."""
        with sound(self.path):
            empty_wal(self._file.connection)

    def close(self) -> None:
        """Write pending results and close the file."""
        if not self.readonly:
            with contextlib.suppress(DataError, ResourceError):  # a recovery recomputes them
                self.keys.flush()
        self._file.close()
