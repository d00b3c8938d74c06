"""Faults that are planted in the files of a learner's folder."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.markers import with_check

Plant = Callable[[Path], object]


def flip(name: str, place: float | bytes) -> Plant:
    """Flip a bit of a file: of a share of it, or where it holds some bytes."""

    def planted(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        at = data.index(place) if isinstance(place, bytes) else int(place * len(data))
        data[at] ^= 1
        (folder / name).write_bytes(data)

    return planted


def gone(*names: str) -> Plant:
    return lambda folder: [(folder / name).unlink() for name in names]


def sql(*statements: str) -> Plant:
    def planted(folder: Path) -> None:
        with closing(sqlite3.connect(folder / JOURNAL, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return planted


def other(name: str, **content: object) -> Plant:
    """Change what a file of JSON says, and its checksum with it."""

    def planted(folder: Path) -> None:
        found = json.loads((folder / name).read_text()) | content
        (folder / name).write_text(json.dumps(with_check(found)))

    return planted


CHANGED = (
    "UPDATE deltas SET bytes = CAST(substr(bytes, 1, length(bytes) - 1) || x'00' AS BLOB) "
    "WHERE seq = {}"
)
