"""The journal of a learner: every delta it was given, in a SQLite file.

A delta that ``write`` returned for survives the end of the process and of the machine: the file is
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
STEP = 1 << 22  # bytes of deltas dropped at a time, while others wait
_NEXT = """SELECT d.seq, coalesce(d.batch, d.seq), k.key, d.bytes FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE d.seq > ? ORDER BY d.seq LIMIT 1"""
_UP_TO_A_STEP = """SELECT min(seq) FROM (
    SELECT seq, sum(length(bytes)) OVER (ORDER BY seq) AS total FROM deltas WHERE seq <= ?)
    WHERE total >= ?"""


class Journal:
    """Deltas numbered 1, 2, ... without a gap, which of them were applied together, and their keys.

    Deltas that snapshots hold can be dropped from its start. Keys stay longer, with what came of
    them, so that a delta that is sent again is known again.

    Args:
        path: the SQLite file.
        readonly: read what another process writes.

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
        """Write a delta down that is applied by itself; when this returns, the disk has it."""
        self.write([JournalEntry(seq, seq, key, data)])

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Write deltas down, all or none; when this returns, the disk has them.

        Raises ``ResourceError`` if the disk is full, or a quota or the largest size of a file is
        reached; nothing is written then. After any other error of SQLite it is not known whether
        the deltas were written.
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
                f"{self.path}: the disk is full: {named(entries)} {verb} not taken in"
            ) from error
        self.keys.written()

    def version(self) -> int:
        """Return a number that is another one once another connection has written.

        It costs microseconds to ask.
        """
        return self._file.number("PRAGMA data_version")

    def is_outdated(self) -> bool:
        """Whether it is a copy of a file that goes on, and is to be opened again."""
        return self._file.is_outdated()

    def last(self) -> int:
        """Return the number of the last delta, 0 if there is none."""
        newest = self._file.number("SELECT coalesce(max(seq), 0) FROM deltas")
        return max(newest, self._start())

    def first(self) -> int:
        """Return the number of the first delta that is or will be here, 0 if there is none."""
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
                f"{self.path}: another process reads it, so what is to go would stay in its -wal "
                "file: end that process, and try again; nothing was changed"
            )

    def begin_anew(self, seq: int, *, keys: bool) -> bool:
        """Hold no delta, and go on after one that only a snapshot holds.

        keys: whether they go as well. Returns whether nothing of what was here is left in the file
        or its WAL; it is not emptied while another process reads.
        """
        self.keys.flush()
        with self._file.change() as connection:
            for table in ("deltas", "start", "set_aside", *(["keys"] if keys else [])):
                connection.execute(f"DELETE FROM {table}")
            connection.execute("INSERT INTO start VALUES (?)", (seq,))
        return self._rewrite()

    def _rewrite(self) -> bool:
        """Write the file anew with nothing but its rows; return whether the WAL is empty, too."""
        with sound(self.path):
            self._file.connection.execute("VACUUM")
            return emptied_wal(self._file.connection)

    def last_written(self, after: int) -> int:
        """Return the number of the first delta after one that was written with the last one.

        What is written together has the same time. 0 where there is no delta after that one.
        """
        newest = "SELECT time FROM deltas ORDER BY seq DESC LIMIT 1"
        query = f"SELECT coalesce(min(seq), 0) FROM deltas WHERE seq > ? AND time = ({newest})"
        return self._file.number(query, after)

    def size_after(self, seq: int) -> int:
        """Return the bytes of the deltas after one."""
        query = "SELECT coalesce(sum(length(bytes)), 0) FROM deltas WHERE seq > ?"
        return self._file.number(query, seq)

    def batches_after(self, seq: int) -> Iterator[list[JournalEntry]]:
        """Yield the deltas after one, in lists of those that were applied together.

        They were written together, so all of a batch are there, or none.
        """
        for batch, entries in groupby(self.after(seq), key=attrgetter("batch")):
            if batch <= seq:
                raise DataError(
                    f"{self.path}: delta {seq + 1} belongs to batch {batch}, so nobody can go on "
                    f"after delta {seq} alone"
                )
            yield list(entries)

    def after(self, seq: int) -> Iterator[JournalEntry]:
        """Yield the deltas after one; raise where a number is missing."""
        # One at a time: they may be large, and a longer look would keep the WAL from shrinking.
        while (row := self._file.one(_NEXT, seq)) is not None:
            found, batch, key, data = row
            if found != seq + 1:
                raise DataError(
                    f"{self.path}: delta {seq + 1} is missing, the next one is {found}: "
                    "put the folder back from a backup"
                )
            seq = found
            yield JournalEntry(seq, batch, None if key is None else decoded(key), data)
        if seq < self._start():  # emptied since: a snapshot holds what comes next
            raise DataError(
                f"{self.path}: delta {seq + 1} is missing, a snapshot up to {self._start()} has it"
            )

    def drop(self, until: int) -> bool:
        """Drop a few of the deltas up to a number; return whether more are left to be dropped."""
        (enough,) = self._file.one(_UP_TO_A_STEP, until, STEP)
        last = until if enough is None else int(enough)
        with self._file.change() as connection:
            connection.execute("DELETE FROM deltas WHERE seq <= ?", (last,))
        with sound(self.path):  # executescript, since execute frees a single page
            self._file.connection.executescript("PRAGMA incremental_vacuum")
        return last < until

    def tidy(self) -> None:
        """Empty the file of the WAL, in which dropped deltas still lie; later if somebody reads."""
        with sound(self.path):
            empty_wal(self._file.connection)

    def close(self) -> None:
        """Write down what is noted and close the file."""
        if not self.readonly:
            with contextlib.suppress(DataError, ResourceError):  # a recovery would find it again
                self.keys.flush()
        self._file.close()
