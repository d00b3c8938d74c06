"""The journal of a learner: every delta, in a SQLite file.

Once ``write`` has returned, a delta survives a crash of the process and of the machine: the file is
in WAL mode with ``synchronous=FULL``, which waits for the disk at every commit.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from evergraph.core.errors import DataError, KeyReusedError, ResourceError
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder import sqlite_file
from evergraph.online.folder.sqlite_file import SqliteFile, decoded, encoded, sound

JOURNAL_FILE = "journal.sqlite"
NOTHING = delta_to_bytes(Delta())  # the empty delta, which replaces a skipped one
_NEXT = """SELECT d.seq, d.batch, k.key, d.bytes FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE d.seq > ? ORDER BY d.seq LIMIT 1"""
_ADD = """INSERT INTO set_aside SELECT d.seq, k.key, d.bytes, ?, ? FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE"""


@dataclass(frozen=True)
class JournalEntry:
    """A delta in a journal."""

    seq: int
    batch: int  # number of the first delta of its batch, on which the bits of a learner depend
    key: str | None  # None if it has none or the key was dropped
    data: bytes = field(repr=False)


def named(entries: Sequence[JournalEntry]) -> str:
    """Return the numbers of entries, for messages."""
    first, last = entries[0].seq, entries[-1].seq
    return f"delta {first}" if first == last else f"deltas {first} to {last}"


class Journal(SqliteFile):
    """Deltas numbered 1, 2, ... without gaps, the batches they were applied in, and their keys.

    Deltas that snapshots include can be dropped from its start. Keys are kept longer, with the
    results, so that a delta that is sent again is recognised. Errors of SQLite are raised as errors
    of this library; see ``sound``. readonly: open for reading, while another process may write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, JOURNAL_FILE))
    ...     journal.write([JournalEntry(1, 1, "a", b"...")])
    ...     journal.last(), list(journal.after(0))
    ...     journal.close()
    (1, [JournalEntry(seq=1, batch=1, key='a')])
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self._seen = sqlite_file.stamps(path)
        super().__init__(path, readonly=readonly)
        self._absolute_path = path.absolute()  # wherever the process goes
        self._inodes = sqlite_file.inodes(self._absolute_path)
        self.keys = JournalKeys(self)
        self.aside = SetAsideDeltas(self)

    def is_outdated(self) -> bool:
        """Whether the file was opened as one that nobody writes to, and has changed since."""
        helped = any(name.endswith("-wal") for name in self._inodes)
        return not helped and self._seen != sqlite_file.stamps(self.path)

    def is_gone(self) -> bool:
        """Whether the file or its WAL was removed, moved or replaced since it was opened.

        SQLite goes on writing to a file that has no name any more.
        """
        now = sqlite_file.inodes(self._absolute_path)
        gone = not self._inodes.items() <= now.items()
        self._inodes |= now  # the WAL comes with the first write
        return gone

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Write deltas, all or none; they are on disk when this returns.

        Raises ``ResourceError`` if there is no room; nothing is written then. After any other
        SQLite error it is uncertain whether the deltas were written.
        """
        now = time.time()
        rows = [(entry.seq, entry.data, now, entry.batch) for entry in entries]
        query = "INSERT INTO deltas (seq, bytes, time, batch) VALUES (?, ?, ?, ?)"
        try:
            with self.transaction() as connection:
                connection.executemany(query, rows)
                self.keys.insert(connection, entries)
        except sqlite3.OperationalError as error:
            size = sum(len(entry.data) for entry in entries)
            if not sqlite_file.has_no_room(self.path, size, error):
                raise
            verb = "was" if len(entries) == 1 else "were"
            raise ResourceError(
                f"{self.path}: the disk is full: {named(entries)} {verb} not written"
            ) from error
        self.keys.pending.clear()

    def version(self) -> int:
        """Return a number that changes when another connection has written; takes microseconds."""
        return self.number("PRAGMA data_version")

    def last(self) -> int:
        """Return the number of the last delta, 0 if there is none."""
        return max(self.number("SELECT coalesce(max(seq), 0) FROM deltas"), self._start())

    def first(self) -> int:
        """Return the number of the first delta that is or will be here; 0 in a new journal."""
        oldest = self.number("SELECT coalesce(min(seq), 0) FROM deltas")
        return oldest or (self._start() + 1 if self._start() else 0)

    def _start(self) -> int:
        return self.number("SELECT coalesce(max(seq), 0) FROM start")

    def check_unread(self) -> None:
        """Raise ``ResourceError`` while another process keeps the WAL from being emptied."""
        with sound(self.path):
            emptied = sqlite_file.emptied_wal(self.connection)
        if not emptied:
            raise ResourceError(
                f"{self.path}: another process reads it, so erased data would stay in its -wal "
                "file: end that process, and try again; nothing was changed"
            )

    def begin_anew(self, seq: int, *, keys: bool) -> bool:
        """Drop all deltas, and keys if asked, and continue after one that only a snapshot has.

        Returns whether nothing of the old is left: the WAL cannot be emptied while another process
        reads it.
        """
        self.keys.flush()
        with self.change() as connection:
            for table in ("deltas", "start", "set_aside", *(["keys"] if keys else [])):
                connection.execute(f"DELETE FROM {table}")
            connection.execute("INSERT INTO start VALUES (?)", (seq,))
            _mark_rewritten(connection, 1)  # readers hold what is erased
        return self._rewrite()

    def _rewrite(self) -> bool:
        """Rewrite the file with its rows only; return whether the WAL is empty, too."""
        with sound(self.path):
            self.connection.execute("VACUUM")
            return sqlite_file.emptied_wal(self.connection)

    def last_written(self, after: int) -> int:
        """Return the first delta after ``after`` of the last write; 0 if nothing came after."""
        # Deltas written together have the same time.
        newest = "SELECT time FROM deltas ORDER BY seq DESC LIMIT 1"
        query = f"SELECT coalesce(min(seq), 0) FROM deltas WHERE seq > ? AND time = ({newest})"
        return self.number(query, after)

    def size_after(self, seq: int) -> int:
        """Return the size of the deltas after ``seq``, in bytes."""
        query = "SELECT coalesce(sum(length(bytes)), 0) FROM deltas WHERE seq > ?"
        return self.number(query, seq)

    def batches_after(self, seq: int) -> Iterator[list[JournalEntry]]:
        """Yield the deltas after ``seq`` in their original batches, all of a batch or none."""
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
        while (row := self.one(_NEXT, seq)) is not None:
            number, batch, key, data = row
            if number != seq + 1:
                raise DataError(
                    f"{self.path}: delta {seq + 1} is missing, the next one is {number}: "
                    "restore the folder from a backup"
                )
            seq = number
            yield JournalEntry(seq, batch, decoded(key), data)
        if seq < self._start():  # purged since: a snapshot includes the next deltas
            raise DataError(
                f"{self.path}: delta {seq + 1} is missing, a snapshot up to {self._start()} has it"
            )

    def drop(self, until: int) -> None:
        """Drop the deltas up to a number, and release their space."""
        with self.change() as connection:
            connection.execute("DELETE FROM deltas WHERE seq <= ?", (until,))
        with sound(self.path):  # executescript, since execute would free a single page only
            self.connection.executescript("PRAGMA incremental_vacuum")

    def tidy(self) -> None:
        """Empty the WAL, which still holds dropped deltas; deferred while another process reads."""
        with sound(self.path):
            sqlite_file.empty_wal(self.connection)

    def close(self) -> None:
        """Write pending results and close the file, even if the disk has failed."""
        if not self.readonly:
            with contextlib.suppress(DataError, ResourceError):  # a recovery recomputes them
                self.keys.flush()
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()


class JournalKeys:
    """Delta keys, by which a delta that is sent again is recognised until its key is dropped."""

    def __init__(self, journal: SqliteFile) -> None:
        self._journal = journal
        self.pending: dict[str, tuple[int, str]] = {}  # results that are not written yet

    def count(self) -> int:
        """Return how many keys are kept."""
        return self._journal.number("SELECT count(*) FROM keys")

    def insert(self, connection: sqlite3.Connection, entries: Iterable[JournalEntry]) -> None:
        """Write the keys of deltas and pending results, within a transaction."""
        # A key that was dropped before may be used again by another delta: hence REPLACE.
        now = time.time()
        rows = [
            (encoded(entry.key), entry.seq, digest_of(entry.data), now)
            for entry in entries
            if entry.key is not None
        ]
        if rows:  # a statement costs even if there is nothing to write
            connection.executemany("REPLACE INTO keys VALUES (?, ?, ?, NULL, ?)", rows)
        if self.pending:
            results = [(result, encoded(key), seq) for key, (seq, result) in self.pending.items()]
            connection.executemany("UPDATE keys SET result = ? WHERE key = ? AND seq = ?", results)

    def known(self, key: str, data: bytes) -> tuple[int, str | None] | None:
        """Return number and result of the delta that used a key before, None if not known yet.

        Raises if that delta differs from ``data``.
        """
        query = "SELECT seq, digest, result FROM keys WHERE key = ?"
        if (row := self._journal.one(query, encoded(key))) is None:
            return None
        seq, digest, result = row
        if digest_of(data) != digest:
            raise key_reused(key, seq)
        pending = self.pending.get(key, (0, ""))
        return seq, pending[1] if pending[0] == seq else result

    def last(self, prefix: str) -> str | None:
        """Return the newest delta key with this prefix, None if there is none."""
        first = encoded(prefix)
        query = "SELECT key FROM keys WHERE key >= ? AND key < ? ORDER BY seq DESC LIMIT 1"
        row = self._journal.one(query, first, first + b"\xff")
        return None if row is None else decoded(row[0])

    def keep_results(self, deltas: Sequence[Delta], results: Sequence[DeltaResult]) -> None:
        """Record the results of deltas with keys."""
        # They are written with the next delta, to avoid a second wait for the disk. Until then a
        # recovery recomputes them by replaying the deltas.
        for delta, result in zip(deltas, results, strict=True):
            if delta.key is not None:
                text = json.dumps(vars(result), sort_keys=True)
                self.pending[delta.key] = result.seq, text

    def flush(self) -> None:
        """Write pending results."""
        if self.pending:
            with self._journal.change() as connection:
                self.insert(connection, ())
            self.pending.clear()

    def drop(self, before: float, *, keep: int) -> None:
        """Drop keys from before a time, but for the newest ``keep``."""
        newest = "SELECT seq FROM keys ORDER BY seq DESC LIMIT 1 OFFSET ?"
        with self._journal.change() as connection:
            connection.execute(
                f"DELETE FROM keys WHERE seq <= ({newest}) AND time < ?", (keep, before)
            )


def key_reused(key: str, seq: int) -> KeyReusedError:
    """Return the error for a key that belongs to another delta."""
    return KeyReusedError(
        f"the key {key!r} belongs to delta {seq}, which had other contents: "
        "give every delta its own key"
    )


@dataclass(frozen=True)
class SetAside:
    """A delta that was set aside."""

    seq: int  # the number that it had
    key: str | None
    why: str  # a sentence
    time: float  # in Unix seconds
    size: int  # in bytes


class SetAsideDeltas:
    """The deltas of a journal that were set aside, and the batch that a recovery is applying."""

    def __init__(self, journal: SqliteFile) -> None:
        self._journal = journal

    def listed(self) -> list[SetAside]:
        """Return the deltas set aside, in order."""
        query = "SELECT seq, key, why, time, length(bytes) FROM set_aside ORDER BY rowid"
        return [SetAside(seq, decoded(key), *rest) for seq, key, *rest in self._journal.rows(query)]

    def count(self) -> int:
        """Return how many deltas were set aside."""
        return self._journal.number("SELECT count(*) FROM set_aside")

    def move(self, first: int, why: str | None) -> None:
        """Take out all deltas from a number on, which later deltas then get.

        why: a sentence, to be kept with them; None if they are written again one by one
        """
        with self._journal.change() as connection:
            if why is not None:
                connection.execute(f"{_ADD} d.seq >= ?", (why, time.time(), first))
            for table in ("deltas", "keys"):
                connection.execute(f"DELETE FROM {table} WHERE seq >= ?", (first,))
            _mark_rewritten(connection, first)

    def skip(self, why: Mapping[int, str]) -> None:
        """Set deltas aside, given by number and reason, and replace them by empty deltas."""
        with self._journal.change() as connection:
            for seq, reason in why.items():
                connection.execute(f"{_ADD} d.seq = ?", (reason, time.time(), seq))
                connection.execute("UPDATE deltas SET bytes = ? WHERE seq = ?", (NOTHING, seq))
                connection.execute("DELETE FROM keys WHERE seq = ?", (seq,))
            _mark_rewritten(connection, min(why))

    def rewritten(self, times: int) -> list[int]:
        """Return the numbers from which the journal was rewritten, without the first ``times``."""
        query = "SELECT seq FROM rewritten ORDER BY rowid LIMIT -1 OFFSET ?"
        return [seq for (seq,) in self._journal.rows(query, times)]

    def begin(self, seq: int) -> bool:
        """Record that a batch is about to be applied; return whether it was recorded before."""
        # If so, the process that tried it last ended while applying it.
        with self._journal.change() as connection:
            recorded = connection.execute("SELECT seq FROM trying").fetchall()
            connection.execute("DELETE FROM trying")
            connection.execute("INSERT INTO trying VALUES (?)", (seq,))
        return (seq,) in recorded

    def end(self) -> None:
        """Record that no batch is being applied."""
        with self._journal.change() as connection:
            connection.execute("DELETE FROM trying")


def _mark_rewritten(connection: sqlite3.Connection, first: int) -> None:
    connection.execute("INSERT INTO rewritten VALUES (?)", (first,))  # readers look there
    connection.execute("DELETE FROM trying")
