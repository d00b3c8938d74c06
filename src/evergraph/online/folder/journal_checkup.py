"""Whether a journal is what was written to it, row by row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.online.codecs.delta_bytes import delta_from_bytes, is_same
from evergraph.online.folder.journal_keys import decoded
from evergraph.online.folder.journal_layout import LAYOUT, layout_of
from evergraph.online.folder.sqlite_file import has_table, open_for_reading

_DELTAS = "SELECT seq, bytes, coalesce(batch, seq) FROM deltas ORDER BY seq"
_DELTAS_BEFORE = "SELECT seq, bytes, seq FROM deltas ORDER BY seq"
_KEYS = "SELECT key, seq, digest, result FROM keys ORDER BY seq"
Told = Callable[[int, int], None]


def check_journal(path: Path, told: Told | None = None) -> Iterator[str]:
    """Yield what is wrong with a journal, a sentence each; told: how many deltas of how many.

    It is looked at as it is at one moment, whoever writes to it.
    """
    if not path.exists():
        yield "is missing"
        return
    try:
        with closing(open_for_reading(path)) as connection:
            connection.execute("BEGIN")
            yield from _integrity(connection)
            layout = layout_of(connection)
            yield from _deltas(connection, _DELTAS if layout == LAYOUT else _DELTAS_BEFORE, told)
            yield from _keys(connection)
    except (sqlite3.Error, DataError) as error:
        yield f"cannot be read ({error})"


def _integrity(connection: sqlite3.Connection) -> Iterator[str]:
    for (said,) in connection.execute("PRAGMA integrity_check(3)"):
        if said != "ok":
            yield f"SQLite finds it damaged ({said})"


def _deltas(connection: sqlite3.Connection, query: str, told: Told | None) -> Iterator[str]:
    # No gap is right: the number of a delta that was set aside goes to the next one, or stays with
    # a delta of nothing. Whether snapshots hold all before the first one is asked elsewhere.
    count = int(connection.execute("SELECT count(*) FROM deltas").fetchone()[0])
    before = batch = 0
    for place, (seq, data, of) in enumerate(connection.execute(query), 1):
        if before and seq != before + 1:
            yield f"delta {before + 1} is missing, the next one is {seq}"
        if of not in (seq, batch):
            yield f"delta {seq} belongs to batch {of}, and the one before it to {batch or 'none'}"
        try:
            delta_from_bytes(data)
        except DataError as error:
            yield f"delta {seq} cannot be read ({error})"
        before, batch = seq, of
        if told is not None:
            told(place, count)


def _start(connection: sqlite3.Connection) -> int:
    """Return after which delta the journal begins, 0 where its first one tells."""
    if not has_table(connection, "start"):  # an earlier layout
        return 0
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM start").fetchone()[0])


def _keys(connection: sqlite3.Connection) -> Iterator[str]:
    last = int(connection.execute("SELECT coalesce(max(seq), 0) FROM deltas").fetchone()[0])
    last = max(last, _start(connection))
    for key, seq, digest, result in connection.execute(_KEYS):
        name = repr(decoded(key))
        if not 0 < seq <= last:
            yield f"key {name} is that of delta {seq}, and the journal ends with {last}"
            continue
        row = connection.execute("SELECT bytes FROM deltas WHERE seq = ?", (seq,)).fetchone()
        if row is not None and not is_same(row[0], digest):
            yield f"key {name} is that of delta {seq}, which has other contents"
        if not _is_result(result, seq):
            yield f"what came of key {name} is not that of delta {seq}"


def _is_result(text: str | None, seq: int) -> bool:
    if text is None:
        return True
    try:
        return bool(json.loads(text)["seq"] == seq)
    except (ValueError, KeyError, TypeError):
        return False
