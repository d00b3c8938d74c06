"""How a journal's file is opened: what SQLite is told, and goes on being told."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from evergraph.online.folder.sqlite_file import empty_wal, open_for_reading, open_for_writing


def told(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_commits_wait_for_the_disk_and_dropped_rows_are_overwritten(tmp_path: Path) -> None:
    connection = open_for_writing(tmp_path / "file")
    assert told(connection, "journal_mode") == "wal"
    assert told(connection, "synchronous") == 2  # FULL
    assert told(connection, "secure_delete") == 1
    assert told(connection, "auto_vacuum") == 2  # INCREMENTAL
    connection.close()


def test_everybody_waits_ten_seconds_for_another_process(tmp_path: Path) -> None:
    writer = open_for_writing(tmp_path / "file")
    writer.execute("CREATE TABLE numbers (n)")
    reader = open_for_reading(tmp_path / "file")
    assert told(writer, "busy_timeout") == told(reader, "busy_timeout") == 10_000
    reader.close()
    wal = tmp_path / "file-wal"
    assert wal.stat().st_size > 0
    empty_wal(writer)  # waits for nobody, and does not stay so impatient
    assert wal.stat().st_size == 0
    assert told(writer, "busy_timeout") == 10_000
    writer.close()
