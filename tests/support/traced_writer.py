"""What a process does to a folder while somebody notes what it asks the system for.

It marks in a file of its own what it has begun and what was acknowledged. Parts that are named as
careless do not wait for the disk: the negative controls.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from evergraph.online.folder import journal, snapshot
from stand_in import delta, opened

SNAPSHOTS = (3, 6, 8)
REOPENED = 10  # after this delta the folder is closed and opened again
LAST = 13


def write(folder: Path, marked: Path, careless: Sequence[str]) -> None:
    """Submit deltas, take snapshots, close and open again; end as if killed."""
    for name in careless:
        CARELESS[name]()
    marks = os.open(marked, os.O_WRONLY | os.O_CREAT)
    opened_folder = opened(folder)
    for number in range(1, LAST + 1):
        os.write(marks, b"begun %d\n" % number)
        opened_folder.submit(delta(number, key=f"k{number}"))
        os.write(marks, b"acknowledged %d\n" % number)
        if number in SNAPSHOTS:
            opened_folder.compact()
        if number == REOPENED:
            opened_folder.close()
            opened_folder = opened(folder)
    os._exit(0)


def careless_journal() -> None:
    """Have SQLite take the system's word for the disk's."""
    open_as_it_is = journal.open_for_writing

    def careless(path: Path) -> sqlite3.Connection:
        connection = open_as_it_is(path)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    journal.open_for_writing = careless


def careless_snapshots() -> None:
    """Have snapshots published that the disk may not have."""
    snapshot.sync = lambda path: None


CARELESS = {"journal": careless_journal, "snapshots": careless_snapshots}
