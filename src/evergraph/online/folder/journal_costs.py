"""How long deltas took to apply: what a restart will take again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from evergraph.online.folder.sqlite_file import has_table, sound, transaction


class JournalCosts:
    """The seconds that each batch took, beside the number of its first delta.

    Nothing that is learned depends on them: they tell when a snapshot is due, and how long a
    recovery will take.

    Args:
        path: the file of the journal.
        connection: to it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._noted: dict[int, float] = {}  # and not yet written

    def note(self, seq: int, seconds: float) -> None:
        """Note what a batch took; it is written with the next delta."""
        self._noted[seq] = seconds

    def insert(self) -> None:
        """Write what is noted, within a transaction."""
        rows = list(self._noted.items())
        self._connection.executemany("REPLACE INTO costs VALUES (?, ?)", rows)

    def written(self) -> None:
        """Take what was noted as written: the transaction is done."""
        self._noted.clear()

    def flush(self) -> None:
        """Write down what is noted."""
        if self._noted:
            with sound(self.path), transaction(self._connection):
                self.insert()
            self.written()

    def after(self, seq: int) -> dict[int, float]:
        """Return the seconds of the batches after a delta, as far as they are known."""
        with sound(self.path):
            if not has_table(self._connection, "costs"):  # the journal of an earlier version
                return {}
            query = "SELECT seq, seconds FROM costs WHERE seq > ?"
            return dict(self._connection.execute(query, (seq,)).fetchall())
