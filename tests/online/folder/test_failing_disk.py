"""A disk that fails: what is refused, what stops a folder, and how it goes on once opened again."""

from __future__ import annotations

import errno
import logging
import os
import resource
import sqlite3
from contextlib import contextmanager

import pytest
import torch

from evergraph.core.errors import ResourceError, StoppedError
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot, sqlite_file
from evergraph.online.folder.journal import Journal, JournalKeys
from evergraph.online.folder.markers import Acknowledged
from evergraph.online.folder.sqlite_file import sound
from stand_in import bits, delta, failing, holds, opened, twin


def wide(number: int) -> Delta:
    return Delta(nodes=[f"{number}-{n:0999}" for n in range(99)], features=torch.ones(99, 3))


@contextmanager
def files_of_at_most(size: int):
    """Have every larger file refused (EFBIG), as a limit of the system does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_limits_to_the_size_of_files_are_a_full_disk(tmp_path):
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        with files_of_at_most(1 << 16):
            for number in (8, 9):
                with pytest.raises(ResourceError, match="the disk is full: delta 2 was not"):
                    folder.submit(wide(number))
        assert (folder.status().stopped, bits(folder.learner)) == (None, twin(1))
        folder.submit(delta(2))
        with files_of_at_most(100), pytest.raises(ResourceError, match="the disk is full"):
            folder.compact()
        assert "the disk is full" in folder.status().snapshot_error
        assert folder.compact() == 2
        assert folder.status().snapshot_error is None
    assert not list(tmp_path.glob(".aside*"))
    assert holds(tmp_path, 2)


class FailingKeys:
    """Keys of a journal, in the middle of whose transaction SQLite says what it says then."""

    def insert(self, connection, entries) -> None:
        raise sqlite3.OperationalError("disk I/O error")


def test_a_quota_is_a_full_disk(tmp_path, monkeypatch):
    def reached(*args):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        with monkeypatch.context() as patch:
            patch.setattr(folder._files._journal, "keys", FailingKeys())
            patch.setattr(sqlite_file.os, "pwrite", reached)
            with pytest.raises(ResourceError, match="the disk is full: delta 2 was not"):
                folder.submit(delta(2))
        assert folder.status().stopped is None
        folder.submit(delta(2))
        assert bits(folder.learner) == twin(2)


@pytest.mark.parametrize("written", [False, True])
def test_a_broken_disk_stops_the_folder_until_it_is_opened_again(
    tmp_path, monkeypatch, caplog, written
):
    """written: although it was written, as where the last flush of a disk fails."""
    stopped, write = [], Journal.write

    def broken(self, entries):
        if written:
            write(self, entries)
        raise sqlite3.OperationalError("disk I/O error")

    with opened(tmp_path) as folder:
        folder.watch(on_change=None, on_stop=lambda: stopped.append(folder.seq))
        folder.submit(delta(1, key="k1"))
        sentence = r"delta 2 could not be .*disk I/O error.*open the folder again"
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "write", broken)
            with pytest.raises(StoppedError, match=sentence):
                folder.submit(delta(2, key="k2"))
        with pytest.raises(StoppedError, match=sentence):
            folder.submit(delta(3))
        status = folder.status()
        assert "disk I/O error" in status.stopped
        assert status.stopped_since is not None
        assert stopped == [1]
        assert bits(folder.learner) == twin(1)  # what is known is answered
        monkeypatch.setattr(snapshot, "sync", None)  # closing does not wait for such a disk
    monkeypatch.undo()
    levels = [each.levelno for each in caplog.records if "disk I/O error" in each.getMessage()]
    assert levels == [logging.ERROR]
    with opened(tmp_path) as folder:
        assert folder.seq == (2 if written else 1)
        assert folder.submit(delta(2, key="k2")).seq == 2  # counts once, whatever was on the disk
        assert folder.submit(delta(3)).seq == 3
        assert bits(folder.learner) == twin(3)


def test_a_journal_that_cannot_be_read_stops_the_folder_too(tmp_path, monkeypatch, caplog):
    def broken(self, key, data):
        with sound(self._journal.path):
            raise sqlite3.OperationalError("disk I/O error")

    with opened(tmp_path) as folder:
        folder.submit(delta(1, key="k1"))
        with monkeypatch.context() as patch:
            patch.setattr(JournalKeys, "known", broken)
            with pytest.raises(StoppedError, match="queued deltas could not be written completely"):
                folder.submit(delta(2, key="k2"))
        assert "disk I/O error" in caplog.text
    with opened(tmp_path) as folder:
        assert folder.submit(delta(2, key="k2")).seq == 2
        assert bits(folder.learner) == twin(2)


def test_what_was_acknowledged_here_is_not_set_aside_where_memory_lacks(tmp_path, monkeypatch):
    """Neither is the number of it on the disk, nor can it be applied again for now."""
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        monkeypatch.setattr(Acknowledged, "note", lambda self, seq: None)
        folder.submit(delta(2))
        with monkeypatch.context() as patch:
            failing(patch, MemoryError(), "n2", "n3")
            with pytest.raises(StoppedError, match="delta 3 could not be written completely"):
                folder.submit(delta(3))
    with opened(tmp_path) as folder:
        assert (folder.seq, folder.status().set_aside) == (2, 1)
        folder.submit(delta(3))
        assert bits(folder.learner) == twin(3)
