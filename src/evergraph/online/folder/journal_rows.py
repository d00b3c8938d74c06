"""The rows of a journal: deltas, and their keys with what came of these."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.core.errors import KeyReusedError
from evergraph.online.codecs.delta_bytes import digest_of, is_same
from evergraph.online.folder.sqlite_file import sound, transaction

AT_A_TIME = 1000  # keys dropped, while others wait


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


@dataclass(frozen=True)
class Known:
    """A delta whose key was used before.

    Attributes:
        seq: which one it was.
        result: what was noted for it with ``keep_result``, None if nothing was yet.
    """

    seq: int
    result: str | None


class JournalKeys:
    """Keys of deltas: one that is sent again is known again, until its key is dropped.

    Args:
        path: the file of the journal.
        connection: to it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._results: dict[str, tuple[int, str]] = {}  # noted, and not yet written

    def count(self) -> int:
        """Return how many keys are kept."""
        with sound(self.path):
            return int(self._connection.execute("SELECT count(*) FROM keys").fetchone()[0])

    def insert(self, entries: Iterable[JournalEntry]) -> None:
        """Keep the keys of deltas, within a transaction; also what is noted is written.

        A key that was dropped elsewhere may come again with another delta: this one has it then.
        """
        now = time.time()
        rows = [
            (encoded(entry.key), entry.seq, digest_of(entry.data), now)
            for entry in entries
            if entry.key is not None
        ]
        self._connection.executemany("REPLACE INTO keys VALUES (?, ?, ?, NULL, ?)", rows)
        self._write_results()

    def known(self, key: str, data: bytes) -> Known | None:
        """Return the delta that had a key before; raise if it was another one than ``data``."""
        query = "SELECT seq, digest, result FROM keys WHERE key = ?"
        with sound(self.path):
            row = self._connection.execute(query, (encoded(key),)).fetchone()
        if row is None:
            return None
        if not is_same(data, row[1]):
            raise key_reused(key, row[0])
        noted = self._results.get(key, (0, ""))
        return Known(row[0], noted[1] if noted[0] == row[0] else row[2])

    def last(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, None where there is none."""
        first = encoded(prefix)
        query = "SELECT key FROM keys WHERE key >= ? AND key < ? ORDER BY seq DESC LIMIT 1"
        with sound(self.path):
            row = self._connection.execute(query, (first, first + b"\xff")).fetchone()
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
            with sound(self.path), transaction(self._connection):
                self._write_results()
            self.written()

    def _write_results(self) -> None:
        rows = [(result, encoded(key), seq) for key, (seq, result) in self._results.items()]
        query = "UPDATE keys SET result = ? WHERE key = ? AND seq = ?"
        self._connection.executemany(query, rows)

    def written(self) -> None:
        """Take what was noted as written: the transaction is done."""
        self._results.clear()

    def drop(self, before: float, *, keep: int) -> bool:
        """Drop a few keys of deltas written before a time, but none of the newest ``keep``.

        Returns whether more are left to be dropped.
        """
        newest = "SELECT seq FROM keys ORDER BY seq DESC LIMIT 1 OFFSET ?"
        old = "SELECT key FROM keys WHERE seq <= ? AND time < ? ORDER BY seq LIMIT ?"
        with sound(self.path), transaction(self._connection):
            row = self._connection.execute(newest, (keep,)).fetchone()
            if row is None:
                return False
            gone = self._connection.execute(
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
