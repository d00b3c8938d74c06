"""The journal: nothing missing, nothing twice, nothing half written."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

from evergraph.core.errors import DataError, KeyReusedError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import JOURNAL_FILE, STEP, Journal, JournalEntry
from evergraph.online.folder.sqlite_file import empty_wal, open_for_reading, open_for_writing


@pytest.fixture
def path(tmp_path):
    return tmp_path / JOURNAL_FILE


@pytest.fixture
def journal(path):
    opened = Journal(path)
    yield opened
    opened.close()


def data(number: int, size: int = 1) -> bytes:
    return delta_to_bytes(Delta(nodes=(number,), features=torch.full((1, size), float(number))))


def append(journal: Journal, seq: int, written: bytes, *, key: str | None = None) -> None:
    journal.write([JournalEntry(seq, seq, key, written)])


def test_deltas_come_back_in_order_after_opening_again(path):
    journal = Journal(path)
    for number in range(1, 6):
        append(journal, number, data(number))
    journal.close()
    again = Journal(path)
    assert (again.first(), again.last()) == (1, 5)
    expected = [JournalEntry(number, number, None, data(number)) for number in (3, 4, 5)]
    assert list(again.after(2)) == expected
    assert again.size_after(3) == len(data(4)) + len(data(5))
    again.close()
    refused = pytest.raises(sqlite3.OperationalError, match="readonly")
    with closing(Journal(path, readonly=True)) as reader, refused:
        append(reader, 6, data(6))


def test_a_key_is_known_with_what_came_of_it(path):
    key, journal = "\udc80\0", Journal(path)
    append(journal, 1, data(1), key=key)
    assert journal.keys.known("other", data(1)) is None
    assert journal.keys.known(key, data(1)) == (1, None)
    journal.keys.pending[key] = 1, "one"
    assert journal.keys.known(key, data(1)) == (1, "one")  # before it is written
    journal.close()
    journal = Journal(path)
    assert journal.keys.known(key, data(1)) == (1, "one")
    with pytest.raises(KeyReusedError, match="belongs to delta 1, which had other contents"):
        journal.keys.known(key, data(2))
    append(journal, 2, data(2), key=key)  # once it was dropped, it may be used again
    assert journal.keys.known(key, data(2)) == (2, None)
    journal.keys.pending[key] = 2, "two"
    journal.keys.pending["b"] = 1, "of a key that is not kept"
    journal.keys.flush()
    assert journal.keys.known(key, data(2)) == (2, "two")
    journal.close()


def test_dropped_deltas_are_gone_and_their_keys_are_not(journal, path):
    third = STEP // 4 // 3 + 1  # float32: three of these make a step
    for seq in range(1, 6):
        append(journal, seq, data(seq, third), key=str(seq))
    assert journal.drop(4)  # a few at a time
    assert journal.first() == 4
    assert not journal.drop(4)
    assert not journal.drop(4)
    assert [entry.seq for entry in journal.after(4)] == [5]
    assert journal.keys.known("1", data(1, third))[0] == 1
    journal.tidy()
    assert path.with_name(f"{JOURNAL_FILE}-wal").stat().st_size == 0
    assert path.stat().st_size < 1.5 * len(data(5, third))
    assert data(5, third)[-1000:] in path.read_bytes()
    assert data(4, third)[-1000:] not in path.read_bytes()


def test_keys_go_when_they_are_old_and_not_among_the_newest(journal, monkeypatch):
    for seq in range(1, 6):
        monkeypatch.setattr(time, "time", lambda seq=seq: 100.0 * seq)
        append(journal, seq, data(seq), key=str(seq))
    assert not journal.keys.drop(350.0, keep=4)  # 1 to 3 are older, 2 to 5 the newest four
    known = [journal.keys.known(str(seq), data(seq)) is not None for seq in (1, 2, 3)]
    assert known == [False, True, True]
    assert not journal.keys.drop(350.0, keep=1)
    assert journal.keys.count() == 2
    assert not journal.keys.drop(1e9, keep=9)
    assert journal.keys.last("") == "5"
    monkeypatch.setattr("evergraph.online.folder.journal.AT_A_TIME", 1)
    assert [journal.keys.drop(1e9, keep=0) for _ in range(3)] == [True, True, False]
    assert journal.keys.count() == 0


def test_what_cannot_be_read_is_refused(path):
    path.write_bytes(b"no database, only words" * 100)
    with pytest.raises(DataError, match=r"journal.sqlite: cannot be used \(file is not a database"):
        Journal(path)
    path.unlink()
    Journal(path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 5")
    later.close()
    for readonly in (True, False):
        with pytest.raises(DataError, match="of layout 5, this version of evergraph reads 4"):
            Journal(path, readonly=readonly)


def test_commits_wait_for_the_disk_dropped_rows_are_overwritten_and_others_have_ten_seconds(
    tmp_path: Path,
) -> None:
    def told(connection: sqlite3.Connection, *names: str) -> list[object]:
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    writer = open_for_writing(tmp_path / "file")
    names = ("journal_mode", "synchronous", "secure_delete", "auto_vacuum")
    assert told(writer, *names) == ["wal", 2, 1, 2]  # FULL, on, INCREMENTAL
    writer.execute("CREATE TABLE numbers (n)")
    reader = open_for_reading(tmp_path / "file")
    assert told(writer, "busy_timeout") == told(reader, "busy_timeout") == [10_000]
    reader.close()
    wal = tmp_path / "file-wal"
    assert wal.stat().st_size > 0
    empty_wal(writer)  # waits for nobody, and does not stay so impatient
    assert wal.stat().st_size == 0
    assert told(writer, "busy_timeout") == [10_000]
    writer.close()
