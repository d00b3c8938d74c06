"""A process that writes to a folder while somebody notes what it asks the system for.

python traced_writer.py FOLDER MARKS [journal] [snapshots]

It tells that it is ready, waits for a line, and marks in a file of its own what it has begun and
what was acknowledged. What is named besides does not wait for the disk: the negative controls.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from evergraph.online.folder import snapshot, sqlite_file
from stand_in import delta, opened

SNAPSHOTS = (3, 6, 8)
REOPENED = 10  # after this delta the folder is closed and opened again
LAST = 13


def write(folder: Path, marks: int) -> None:
    """Submit deltas, take snapshots, close and open again; end as if killed."""
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
    open_as_it_is = sqlite_file.open_for_writing

    def careless(path: Path) -> sqlite3.Connection:
        connection = open_as_it_is(path)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    sqlite_file.open_for_writing = careless


def careless_snapshots() -> None:
    """Have snapshots published that the disk may not have."""
    snapshot.sync = lambda path: None


CARELESS = {"journal": careless_journal, "snapshots": careless_snapshots}


if __name__ == "__main__":
    for name in sys.argv[3:]:
        CARELESS[name]()
    marks = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
    os.write(1, b"ready\n")
    sys.stdin.readline()
    write(Path(sys.argv[1]), marks)
