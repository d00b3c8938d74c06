"""The rows of a journal: deltas, keys with results, and deltas that were set aside."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evergraph.core.errors import KeyReusedError
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of, is_same
from evergraph.online.delta import Delta
from evergraph.online.folder.sqlite_file import SqliteFile

AT_A_TIME = 1000  # keys dropped in one transaction, while others wait
NOTHING = delta_to_bytes(Delta())  # the empty delta, which replaces a skipped one
_ADD = """INSERT INTO set_aside SELECT d.seq, k.key, d.bytes, ?, ? FROM deltas AS d
    LEFT JOIN keys AS k ON k.seq = d.seq WHERE"""


@dataclass(frozen=True)
class JournalEntry:
    """A delta in a journal.

    Attributes:
        seq: its number.
        batch: the number of the first delta that it was applied together with; the bits of a
            learner depend on the batches.
        key: its key, None if it has none or the key was dropped.
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
    """Return deltas, given as bytes and key, as the entries of one batch.

    >>> batch_of(4, [(b"", None), (b"", "k")])
    [JournalEntry(delta 4, 0 bytes), JournalEntry(delta 5 of batch 4, 0 bytes)]
    """
    return [
        JournalEntry(first + index, first, key, data) for index, (data, key) in enumerate(deltas)
    ]


def named(entries: Sequence[JournalEntry]) -> str:
    """Return the numbers of entries, for messages.

    >>> named(batch_of(4, [(b"", None), (b"", "k")]))
    'deltas 4 to 5'
    """
    first, last = entries[0].seq, entries[-1].seq
    return f"delta {first}" if first == last else f"deltas {first} to {last}"


class JournalKeys:
    """Delta keys, by which a delta that is sent again is recognised until its key is dropped."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._results: dict[str, tuple[int, str]] = {}  # not yet written

    def count(self) -> int:
        """Return how many keys are kept."""
        return self._file.number("SELECT count(*) FROM keys")

    def insert(self, connection: sqlite3.Connection, entries: Iterable[JournalEntry]) -> None:
        """Write the keys of deltas and pending results, within a transaction.

        A key that was dropped before may be used again by another delta.
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
        """Return the number and the result of the delta that used a key before.

        The result is None if it is not known yet. Raises if that delta differs from ``data``.
        """
        query = "SELECT seq, digest, result FROM keys WHERE key = ?"
        if (row := self._file.one(query, encoded(key))) is None:
            return None
        seq, digest, result = row
        if not is_same(data, digest):
            raise key_reused(key, seq)
        pending = self._results.get(key, (0, ""))
        return seq, pending[1] if pending[0] == seq else result

    def last(self, prefix: str) -> str | None:
        """Return the newest delta key with this prefix, None if there is none."""
        first = encoded(prefix)
        query = "SELECT key FROM keys WHERE key >= ? AND key < ? ORDER BY seq DESC LIMIT 1"
        row = self._file.one(query, first, first + b"\xff")
        return None if row is None else decoded(row[0])

    def keep_result(self, key: str, seq: int, result: str) -> None:
        """Record the result of a delta with a key.

        It is written with the next delta, to avoid a second wait for the disk. Until then a
        recovery recomputes it by replaying the delta.
        """
        self._results[key] = seq, result

    def flush(self) -> None:
        """Write pending results."""
        if self._results:
            with self._file.change() as connection:
                self._write_results(connection)
            self.written()

    def _write_results(self, connection: sqlite3.Connection) -> None:
        rows = [(result, encoded(key), seq) for key, (seq, result) in self._results.items()]
        connection.executemany("UPDATE keys SET result = ? WHERE key = ? AND seq = ?", rows)

    def written(self) -> None:
        """Clear pending results, after the transaction that wrote them."""
        self._results.clear()

    def drop(self, before: float, *, keep: int) -> bool:
        """Drop a few keys written before a time, but none of the newest ``keep``.

        Returns whether there are more to drop.
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
    """Return the error for a key that belongs to another delta."""
    return KeyReusedError(
        f"the key {key!r} belongs to delta {seq}, which had other contents: "
        "give every delta its own key"
    )


def encoded(key: str) -> bytes:
    """Return a key as bytes, since SQLite's text cannot hold a lone surrogate and JSON can."""
    return key.encode("utf-8", "surrogatepass")


def decoded(key: bytes) -> str:
    """Return the key that ``encoded`` was given."""
    return bytes(key).decode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class SetAside:
    """A delta that was set aside.

    Attributes:
        seq: the number that it had.
        key: its key, None if it has none.
        why: a sentence.
        time: in Unix seconds.
        size: in bytes.
    """

    seq: int
    key: str | None
    why: str
    time: float
    size: int


class SetAsideDeltas:
    """The deltas of a journal that were set aside, and the batch that a recovery is applying."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def listed(self) -> list[SetAside]:
        """Return the deltas set aside, in order."""
        query = "SELECT seq, key, why, time, length(bytes) FROM set_aside ORDER BY rowid"
        return [
            SetAside(seq, None if key is None else decoded(key), why, when, size)
            for seq, key, why, when, size in self._file.rows(query)
        ]

    def count(self) -> int:
        """Return how many deltas were set aside."""
        return self._file.number("SELECT count(*) FROM set_aside")

    def move(self, first: int, why: str) -> None:
        """Set aside all deltas from a number on; later deltas reuse the numbers."""
        with self._file.change() as connection:
            connection.execute(f"{_ADD} d.seq >= ?", (why, time.time(), first))
            self._remove(connection, first)

    def take_back(self, first: int) -> None:
        """Remove all deltas from a number on, which are then written again one by one."""
        with self._file.change() as connection:
            self._remove(connection, first)

    def _remove(self, connection: sqlite3.Connection, first: int) -> None:
        for table in ("deltas", "keys"):
            connection.execute(f"DELETE FROM {table} WHERE seq >= ?", (first,))
        self._mark_rewritten(connection, first)

    def _mark_rewritten(self, connection: sqlite3.Connection, first: int) -> None:
        """Tell readers that deltas from a number on have changed."""
        connection.execute("INSERT INTO rewritten VALUES (?)", (first,))
        connection.execute("DELETE FROM trying")

    def skip(self, why: Mapping[int, str]) -> None:
        """Set deltas aside, given by number and reason, and replace them by empty deltas."""
        with self._file.change() as connection:
            for seq, reason in why.items():
                connection.execute(f"{_ADD} d.seq = ?", (reason, time.time(), seq))
                connection.execute("UPDATE deltas SET bytes = ? WHERE seq = ?", (NOTHING, seq))
                connection.execute("DELETE FROM keys WHERE seq = ?", (seq,))
            self._mark_rewritten(connection, min(why))

    def rewritten(self, times: int) -> list[int]:
        """Return the numbers from which the journal was rewritten, without the first ``times``."""
        query = "SELECT seq FROM rewritten ORDER BY rowid LIMIT -1 OFFSET ?"
        return [seq for (seq,) in self._file.rows(query, times)]

    def begin(self, seq: int) -> bool:
        """Record that a batch is about to be applied; return whether it was recorded before.

        If so, the process that tried it last ended while applying it.
        """
        with self._file.change() as connection:
            found = connection.execute("SELECT seq FROM trying").fetchall()
            connection.execute("DELETE FROM trying")
            connection.execute("INSERT INTO trying VALUES (?)", (seq,))
        return (seq,) in found

    def end(self) -> None:
        """Record that no batch is being applied."""
        with self._file.change() as connection:
            connection.execute("DELETE FROM trying")
