"""The journal of a learner: every delta it was given, in a SQLite file.

A delta that ``write`` returned for survives the end of the process and of the machine: the file is
in WAL mode with ``synchronous=FULL``, which waits for the disk at every commit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from evergraph.core.errors import DataError, ResourceError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.online.folder.journal_rows import JournalEntry, JournalKeys, decoded, named
from evergraph.online.folder.sqlite_file import (
    BATCHES,
    bring_up_to_date,
    disk_is_full,
    emptied_wal,
    empty_wal,
    has_table,
    layout_of,
    open_for_reading,
    open_for_writing,
    rewrite,
    sound,
    transaction,
)

JOURNAL_FILE = "journal.sqlite"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_TRIED = 1 << 26  # bytes, to find out whether there is room
NOTHING = delta_to_bytes(Delta())  # what stands in the place of a delta that was skipped
STEP = 1 << 22  # bytes of deltas dropped at a time, while others wait
_NEXT = """SELECT d.seq, coalesce(d.batch, d.seq), k.key, d.bytes FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE d.seq > ? ORDER BY d.seq LIMIT 1"""
_NEXT_BEFORE = "SELECT seq, seq, NULL, bytes FROM deltas WHERE seq > ? ORDER BY seq LIMIT 1"
_ADD = """INSERT INTO set_aside SELECT d.seq, k.key, d.bytes, ?, ? FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE"""


@dataclass(frozen=True)
class SetAside:
    """A delta that was set aside.

    Attributes:
        seq: the number that it had.
        key: its key, None where it has none.
        why: a sentence.
        time: when, in Unix seconds.
        size: its bytes.
    """

    seq: int
    key: str | None
    why: str
    time: float
    size: int


class SetAsideDeltas:
    """The deltas of a journal that were set aside, and the one that is being tried.

    Args:
        path: the file of the journal.
        connection: to it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    def listed(self) -> list[SetAside]:
        """Return what was set aside, in that order."""
        query = "SELECT seq, key, why, time, length(bytes) FROM set_aside ORDER BY rowid"
        with sound(self.path):
            if not has_table(self._connection, "set_aside"):  # the journal of an earlier version
                return []
            rows = self._connection.execute(query).fetchall()
        return [
            SetAside(seq, None if key is None else decoded(key), why, when, size)
            for seq, key, why, when, size in rows
        ]

    def count(self) -> int:
        """Return how many deltas were set aside."""
        return len(self.listed())

    def move(self, first: int, why: str) -> None:
        """Set aside all deltas from a number on: these numbers are given to others later."""
        with sound(self.path), transaction(self._connection):
            self._connection.execute(f"{_ADD} d.seq >= ?", (why, time.time(), first))
            self._remove(first)

    def take_back(self, first: int) -> None:
        """Remove all deltas from a number on, which are going to be written anew, one by one."""
        with sound(self.path), transaction(self._connection):
            self._remove(first)

    def _remove(self, first: int) -> None:
        for table in ("deltas", "keys", "costs"):
            self._connection.execute(f"DELETE FROM {table} WHERE seq >= ?", (first,))
        self._note(first)

    def _note(self, first: int) -> None:
        self._connection.execute("INSERT INTO rewritten VALUES (?)", (first,))
        self._connection.execute("DELETE FROM trying")

    def skip(self, why: Mapping[int, str]) -> None:
        """Set some deltas aside, number and why, and leave their numbers to deltas of nothing."""
        with sound(self.path), transaction(self._connection):
            for seq, reason in why.items():
                self._connection.execute(f"{_ADD} d.seq = ?", (reason, time.time(), seq))
                query = "UPDATE deltas SET bytes = ? WHERE seq = ?"
                self._connection.execute(query, (NOTHING, seq))
                self._connection.execute("DELETE FROM keys WHERE seq = ?", (seq,))
            self._note(min(why))

    def rewritten(self, times: int) -> list[int]:
        """Return from which numbers on the journal was changed, but for the first so many times."""
        with sound(self.path):
            if not has_table(self._connection, "rewritten"):
                return []
            query = "SELECT seq FROM rewritten ORDER BY rowid LIMIT -1 OFFSET ?"
            return [seq for (seq,) in self._connection.execute(query, (times,))]

    def begin(self, seq: int) -> bool:
        """Note that a batch is going to be applied; return whether that was noted before.

        Then the process that tried it last has not lived to see the end.
        """
        with sound(self.path), transaction(self._connection):
            found = self._connection.execute("SELECT seq FROM trying").fetchall()
            self._connection.execute("DELETE FROM trying")
            self._connection.execute("INSERT INTO trying VALUES (?)", (seq,))
        return (seq,) in found

    def end(self) -> None:
        """Note that nothing is being tried any more."""
        with sound(self.path), transaction(self._connection):
            self._connection.execute("DELETE FROM trying")


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
        with sound(path):
            self._connection = open_for_reading(path) if readonly else _writable(path)
            self._batches = layout_of(self._connection) >= BATCHES
        self.keys = JournalKeys(path, self._connection)
        self.aside = SetAsideDeltas(path, self._connection)

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
        try:
            with transaction(self._connection):
                self._connection.executemany(query, rows)
                self.keys.insert(entries)
        except sqlite3.OperationalError as error:
            size = sum(len(entry.data) for entry in entries)
            if not disk_is_full(error) and not has_no_room(self.path, size):
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
        with sound(self.path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def last(self) -> int:
        """Return the number of the last delta, 0 if there is none."""
        newest = self._number("SELECT coalesce(max(seq), 0) FROM deltas")
        return max(newest, self._start())

    def first(self) -> int:
        """Return the number of the first delta that is or will be here, 0 if there is none."""
        oldest = self._number("SELECT coalesce(min(seq), 0) FROM deltas")
        return oldest or (self._start() + 1 if self._start() else 0)

    def check_unread(self) -> None:
        """Raise ``ResourceError`` while another process keeps the WAL from being emptied."""
        with sound(self.path):
            emptied = emptied_wal(self._connection)
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
        with sound(self.path), transaction(self._connection):
            for table in ("deltas", "start", "set_aside", "costs", *(["keys"] if keys else [])):
                if has_table(self._connection, table):
                    self._connection.execute(f"DELETE FROM {table}")
            self._connection.execute("INSERT INTO start VALUES (?)", (seq,))
        with sound(self.path):
            return rewrite(self._connection)

    def _start(self) -> int:
        return self._number("SELECT coalesce(max(seq), 0) FROM start") if self._batches else 0

    def last_written(self, after: int) -> int:
        """Return the number of the first delta after one that was written with the last one.

        What is written together has the same time. 0 where there is no delta after that one.
        """
        newest = "SELECT time FROM deltas ORDER BY seq DESC LIMIT 1"
        query = f"SELECT coalesce(min(seq), 0) FROM deltas WHERE seq > ? AND time = ({newest})"
        return self._number(query, after)

    def size_after(self, seq: int) -> int:
        """Return the bytes of the deltas after one."""
        return self._number("SELECT coalesce(sum(length(bytes)), 0) FROM deltas WHERE seq > ?", seq)

    def _number(self, query: str, *values: int) -> int:
        with sound(self.path):
            return int(self._connection.execute(query, values).fetchone()[0])

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
        while (entry := self._next(seq)) is not None:
            if entry.seq != seq + 1:
                raise DataError(
                    f"{self.path}: delta {seq + 1} is missing, the next one is {entry.seq}: "
                    "put the folder back from a backup"
                )
            seq = entry.seq
            yield entry
        if seq < self._start():  # emptied since: a snapshot holds what comes next
            raise DataError(
                f"{self.path}: delta {seq + 1} is missing, a snapshot up to {self._start()} has it"
            )

    def _next(self, seq: int) -> JournalEntry | None:
        # One at a time: they may be large, and a longer look would keep the WAL from shrinking.
        with sound(self.path):
            row = self._row(seq)
        if row is None:
            return None
        key = None if row[2] is None else decoded(row[2])
        return JournalEntry(row[0], row[1], key, row[3])

    def _row(self, seq: int) -> tuple[int, int, bytes | None, bytes] | None:
        row: tuple[int, int, bytes | None, bytes] | None
        if self._batches:
            row = self._connection.execute(_NEXT, (seq,)).fetchone()
            return row
        # Whoever reads an earlier layout may see it brought up to date by another process.
        self._connection.execute("BEGIN")
        try:
            self._batches = layout_of(self._connection) >= BATCHES
            query = _NEXT if self._batches else _NEXT_BEFORE
            row = self._connection.execute(query, (seq,)).fetchone()
        finally:
            self._connection.execute("ROLLBACK")
        return row

    def drop(self, until: int) -> bool:
        """Drop a few of the deltas up to a number; return whether more are left to be dropped."""
        last = self._step(until)
        with sound(self.path), transaction(self._connection):
            self._connection.execute("DELETE FROM deltas WHERE seq <= ?", (last,))
            self._connection.execute("DELETE FROM costs WHERE seq <= ?", (last,))
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
        if not self.readonly:
            with contextlib.suppress(DataError, ResourceError):  # a recovery would find it again
                self.keys.flush()
        with contextlib.suppress(sqlite3.Error):  # of a disk that is gone
            self._connection.close()


def _writable(path: Path) -> sqlite3.Connection:
    connection = open_for_writing(path)
    bring_up_to_date(connection)
    # After a flush that failed, what a process before us left in the WAL may be in the system's
    # memory alone: it is written anew. A disk that is full or fails says so with the next delta.
    with contextlib.suppress(sqlite3.OperationalError):
        empty_wal(connection)
    return connection


def has_no_room(journal: Path, size: int) -> bool:
    """Whether the log of a SQLite file cannot grow by so many bytes.

    SQLite says "disk I/O error" where a quota or the largest size of a file is reached, as it does
    where the disk is broken. So the same is tried with a file beside, which is removed again.
    """
    tried = bytes(min(max(size, 1), MOST_TRIED))
    log = journal.with_name(f"{journal.name}-wal")
    try:
        end = log.stat().st_size if log.exists() else 0
        with tempfile.TemporaryFile(dir=journal.parent) as file:
            # What lies before the end takes no room: nothing is written there.
            return os.pwrite(file.fileno(), tried, end) < len(tried)
    except OSError as error:
        return error.errno in NO_ROOM
