"""The rows of a journal: deltas, their keys with what came of these, and what was set aside."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evergraph.core.errors import KeyReusedError
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of, is_same
from evergraph.online.delta import Delta
from evergraph.online.folder.sqlite_file import SqliteFile

AT_A_TIME = 1000  # keys dropped, while others wait
NOTHING = delta_to_bytes(Delta())  # what stands in the place of a delta that was skipped
_ADD = """INSERT INTO set_aside SELECT d.seq, k.key, d.bytes, ?, ? FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE"""


@dataclass(frozen=True)
class JournalEntry:
    """A delta in a journal.

    Attributes:
        seq: its number.
        batch: the number of the first of the deltas that it was applied with: the bits of a learner
            depend on which these were.
        key: its key, None where it has none, or where that has been dropped.
        data: its bytes.

    >>> JournalEntry(3, 3, None, b"...")
    JournalEntry(delta 3, 3 bytes)
    """

    seq: int
    batch: int
    key: str | None
    data: bytes

    def __repr__(self) -> str:
        batch = "" if self.batch == self.seq else f" of batch {self.batch}"
        return f"JournalEntry(delta {self.seq}{batch}, {len(self.data)} bytes)"


def batch_of(first: int, deltas: Iterable[tuple[bytes, str | None]]) -> list[JournalEntry]:
    """Return deltas, bytes and key each, as the entries of one batch.

    >>> batch_of(4, [(b"", None), (b"", "k")])
    [JournalEntry(delta 4, 0 bytes), JournalEntry(delta 5 of batch 4, 0 bytes)]
    """
    return [
        JournalEntry(first + place, first, key, data) for place, (data, key) in enumerate(deltas)
    ]


def named(entries: Sequence[JournalEntry]) -> str:
    """Return which deltas these are, for a sentence.

    >>> named(batch_of(4, [(b"", None), (b"", "k")]))
    'deltas 4 to 5'
    """
    first, last = entries[0].seq, entries[-1].seq
    return f"delta {first}" if first == last else f"deltas {first} to {last}"


class JournalKeys:
    """Keys of deltas: one that is sent again is known again, until its key is dropped.

    Args:
        file: of the journal.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._results: dict[str, tuple[int, str]] = {}  # noted, and not yet written

    def count(self) -> int:
        """Return how many keys are kept."""
        return self._file.number("SELECT count(*) FROM keys")

    def insert(self, connection: sqlite3.Connection, entries: Iterable[JournalEntry]) -> None:
        """Keep the keys of deltas, within a transaction; also what is noted is written.

        A key that was dropped elsewhere may come again with another delta: this one has it then.
        """
        now = time.time()
        rows = [
            (encoded(entry.key), entry.seq, digest_of(entry.data), now)
            for entry in entries
            if entry.key is not None
        ]
        connection.executemany("REPLACE INTO keys VALUES (?, ?, ?, NULL, ?)", rows)
        self._write_results(connection)

    def known(self, key: str, data: bytes) -> tuple[int, str | None] | None:
        """Return the number of the delta that had a key before, and what came of it.

        That is None where nothing was noted yet. Raises if it was another delta than ``data``.
        """
        query = "SELECT seq, digest, result FROM keys WHERE key = ?"
        if (row := self._file.one(query, encoded(key))) is None:
            return None
        seq, digest, result = row
        if not is_same(data, digest):
            raise key_reused(key, seq)
        noted = self._results.get(key, (0, ""))
        return seq, noted[1] if noted[0] == seq else result

    def last(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, None where there is none."""
        first = encoded(prefix)
        query = "SELECT key FROM keys WHERE key >= ? AND key < ? ORDER BY seq DESC LIMIT 1"
        row = self._file.one(query, first, first + b"\xff")
        return None if row is None else decoded(row[0])

    def keep_result(self, key: str, seq: int, result: str) -> None:
        """Note what came of a delta with a key.

        It is written with the next delta. Until then a recovery finds it by applying the delta
        again, so that nobody has to wait for the disk twice.
        """
        self._results[key] = seq, result

    def flush(self) -> None:
        """Write down what is noted."""
        if self._results:
            with self._file.change() as connection:
                self._write_results(connection)
            self.written()

    def _write_results(self, connection: sqlite3.Connection) -> None:
        rows = [(result, encoded(key), seq) for key, (seq, result) in self._results.items()]
        connection.executemany("UPDATE keys SET result = ? WHERE key = ? AND seq = ?", rows)

    def written(self) -> None:
        """Take what was noted as written: the transaction is done."""
        self._results.clear()

    def drop(self, before: float, *, keep: int) -> bool:
        """Drop a few keys of deltas written before a time, but none of the newest ``keep``.

        Returns whether more are left to be dropped.
        """
        newest = "SELECT seq FROM keys ORDER BY seq DESC LIMIT 1 OFFSET ?"
        old = "SELECT key FROM keys WHERE seq <= ? AND time < ? ORDER BY seq LIMIT ?"
        with self._file.change() as connection:
            row = connection.execute(newest, (keep,)).fetchone()
            if row is None:
                return False
            gone = connection.execute(
                f"DELETE FROM keys WHERE key IN ({old})", (row[0], before, AT_A_TIME)
            )
        return gone.rowcount == AT_A_TIME


def key_reused(key: str, seq: int) -> KeyReusedError:
    """Return what is said where a key belongs to another delta."""
    return KeyReusedError(
        f"the key {key!r} belongs to delta {seq}, which had other contents: "
        "give every delta a key of its own"
    )


def encoded(key: str) -> bytes:
    """Return a key as the journal holds it.

    Bytes: SQLite's text cannot hold a lone surrogate, and a key from JSON may.
    """
    return key.encode("utf-8", "surrogatepass")


def decoded(key: bytes) -> str:
    """Return the key that ``encoded`` was given."""
    return bytes(key).decode("utf-8", "surrogatepass")


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
        file: of the journal.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def listed(self) -> list[SetAside]:
        """Return what was set aside, in that order."""
        query = "SELECT seq, key, why, time, length(bytes) FROM set_aside ORDER BY rowid"
        return [
            SetAside(seq, None if key is None else decoded(key), why, when, size)
            for seq, key, why, when, size in self._file.rows(query)
        ]

    def count(self) -> int:
        """Return how many deltas were set aside."""
        return self._file.number("SELECT count(*) FROM set_aside")

    def move(self, first: int, why: str) -> None:
        """Set aside all deltas from a number on: these numbers are given to others later."""
        with self._file.change() as connection:
            connection.execute(f"{_ADD} d.seq >= ?", (why, time.time(), first))
            self._remove(connection, first)

    def take_back(self, first: int) -> None:
        """Remove all deltas from a number on, which are going to be written anew, one by one."""
        with self._file.change() as connection:
            self._remove(connection, first)

    def _remove(self, connection: sqlite3.Connection, first: int) -> None:
        for table in ("deltas", "keys"):
            connection.execute(f"DELETE FROM {table} WHERE seq >= ?", (first,))
        self._note(connection, first)

    def _note(self, connection: sqlite3.Connection, first: int) -> None:
        connection.execute("INSERT INTO rewritten VALUES (?)", (first,))
        connection.execute("DELETE FROM trying")

    def skip(self, why: Mapping[int, str]) -> None:
        """Set some deltas aside, number and why, and leave their numbers to deltas of nothing."""
        with self._file.change() as connection:
            for seq, reason in why.items():
                connection.execute(f"{_ADD} d.seq = ?", (reason, time.time(), seq))
                connection.execute("UPDATE deltas SET bytes = ? WHERE seq = ?", (NOTHING, seq))
                connection.execute("DELETE FROM keys WHERE seq = ?", (seq,))
            self._note(connection, min(why))

    def rewritten(self, times: int) -> list[int]:
        """Return from which numbers on the journal was changed, but for the first so many times."""
        query = "SELECT seq FROM rewritten ORDER BY rowid LIMIT -1 OFFSET ?"
        return [seq for (seq,) in self._file.rows(query, times)]

    def begin(self, seq: int) -> bool:
        """Note that a batch is going to be applied; return whether that was noted before.

        Then the process that tried it last has not lived to see the end.
        """
        with self._file.change() as connection:
            found = connection.execute("SELECT seq FROM trying").fetchall()
            connection.execute("DELETE FROM trying")
            connection.execute("INSERT INTO trying VALUES (?)", (seq,))
        return (seq,) in found

    def end(self) -> None:
        """Note that nothing is being tried any more."""
        with self._file.change() as connection:
            connection.execute("DELETE FROM trying")
