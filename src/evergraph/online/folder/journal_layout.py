"""The tables of a journal, and how those of earlier versions become today's.

Layout 3 has ``batch`` beside a delta, the number of the first of the deltas that it was applied
with, and ``time`` beside a key, when its delta was written. ``start`` holds a number where the
journal began with a snapshot: that of the last delta of this. SQLite keeps the number of the layout
(``user_version``); earlier ones have none, and no batches: every delta was applied by itself.

Layout 4 has four tables more. ``costs``: the seconds that a batch took, beside the number of its
first delta (a table of its own: a second column would have the delta's bytes written again).
``set_aside``: deltas that could not be applied. ``rewritten``: numbers from which on the journal is
not what it was, for readers that know them already. ``trying``: the batch that a recovery is
applying.
"""

from __future__ import annotations

import sqlite3
import time

from evergraph.core.errors import DataError
from evergraph.online.folder.sqlite_file import transaction

LAYOUT = 4
BATCHES = 3  # the first layout that has them
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS deltas (
        seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL, time REAL NOT NULL, batch INTEGER)""",
    """CREATE TABLE IF NOT EXISTS keys (
        key BLOB PRIMARY KEY, seq INTEGER NOT NULL, digest BLOB NOT NULL, result TEXT, time REAL)
        WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS start (seq INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS keys_by_seq ON keys (seq)",
    "CREATE TABLE IF NOT EXISTS costs (seq INTEGER PRIMARY KEY, seconds REAL NOT NULL)",
    """CREATE TABLE IF NOT EXISTS set_aside (
        seq INTEGER NOT NULL, key BLOB, bytes BLOB NOT NULL, why TEXT NOT NULL,
        time REAL NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS rewritten (seq INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS trying (seq INTEGER NOT NULL)",
)
_LATER = {"deltas": "batch INTEGER", "keys": "time REAL"}


def layout_of(connection: sqlite3.Connection) -> int:
    """Return the layout of a journal, 0 for those that have no number; refuse later ones."""
    layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if layout > LAYOUT:
        raise DataError(
            f"the journal is of layout {layout}, this version of evergraph reads {LAYOUT} and "
            "earlier ones: open it with the version that wrote it"
        )
    return layout


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Make the tables, or add what those of earlier versions lack.

    When the deltas of keys there were written is not known: they count as written now.
    """
    if layout_of(connection) == LAYOUT:
        return
    with transaction(connection):
        for statement in _SCHEMA:
            connection.execute(statement)
        for table, column in _LATER.items():
            if column.split()[0] not in _columns(connection, table):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        connection.execute("UPDATE keys SET time = ? WHERE time IS NULL", (time.time(),))
        connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
