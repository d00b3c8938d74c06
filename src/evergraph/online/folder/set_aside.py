"""Deltas that a journal holds and that could not be applied: kept, and not in the way.

Who sent such a delta was never told that it is safe, or an operator has decided that it is to be
left out. Its bytes stay in the journal, so nothing is lost; its key is free again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.online.folder.sqlite_file import has_table, sound, transaction

if TYPE_CHECKING:
    from evergraph.online.folder.journal import Journal

NOTHING = delta_to_bytes(Delta())  # what stands in the place of a delta that was skipped
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
        return [SetAside(seq, _text(key), why, when, size) for seq, key, why, when, size in rows]

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


def set_aside_in(journal: Journal) -> list[SetAside]:
    """Return the deltas of a journal that were set aside, in that order."""
    return journal.aside.listed()


def _text(key: bytes | None) -> str | None:
    return None if key is None else bytes(key).decode("utf-8", "surrogatepass")
