"""A disk that fails: what is refused, what stops a folder, and how it goes on by itself."""

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
from evergraph.online.folder import healing, room, snapshot, writable
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.journal_keys import JournalKeys
from evergraph.online.folder.markers import Acknowledged
from evergraph.online.folder.sqlite_file import sound
from stand_in import StandIn, bits, delta, opened, twin
from waiting import until


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


def test_a_limit_to_the_size_of_files_is_a_full_disk(tmp_path):
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        with files_of_at_most(1 << 16):
            for number in (8, 9):
                with pytest.raises(ResourceError, match="the disk is full: delta 2 was not taken"):
                    folder.submit(wide(number))
        assert (folder.status().stopped, bits(folder.learner)) == (None, twin(1))
        folder.submit(delta(2))
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(2)


def test_a_quota_is_a_full_disk(tmp_path, monkeypatch):
    def reached(*args):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        with monkeypatch.context() as patch:
            patch.setattr(folder._files._journal, "keys", FailingKeys())
            patch.setattr(room.os, "pwrite", reached)
            with pytest.raises(ResourceError, match="the disk is full: delta 2 was not taken in"):
                folder.submit(delta(2))
        assert folder.status().stopped is None
        folder.submit(delta(2))
        assert bits(folder.learner) == twin(2)


class FailingKeys:
    """Keys of a journal, in the middle of whose transaction SQLite says what it says then."""

    def insert(self, entries) -> None:
        raise sqlite3.OperationalError("disk I/O error")


def test_a_snapshot_beyond_the_size_of_files_is_said_and_taken_later(tmp_path):
    with opened(tmp_path) as folder:
        folder.submit(wide(1))
        with files_of_at_most(1 << 10), pytest.raises(ResourceError, match="the disk is full"):
            folder.compact()
        assert "the disk is full" in folder.status().snapshot_error
        assert folder.compact() == 1
        assert folder.status().snapshot_error is None
    assert not list(tmp_path.glob(".aside*"))


@contextmanager
def broken_disk(patch, *, written: bool):
    """Have writing fail as on a broken disk; written: although it was written."""
    write = Journal.write

    def broken(self, entries):
        if written:
            write(self, entries)
        raise sqlite3.OperationalError("disk I/O error")

    with patch.context() as inner:
        inner.setattr(Journal, "write", broken)
        yield


@pytest.mark.parametrize("written", [False, True])
def test_a_broken_disk_stops_the_folder_until_it_is_well(tmp_path, monkeypatch, caplog, written):
    renewed = []
    with opened(tmp_path, retry=0.05) as folder:
        folder.on_renewed = lambda: renewed.append(folder.seq)
        folder.submit(delta(1, key="k1"))
        with folder.lock:  # not well before it was looked at
            sentence = r"delta 2 could not be .*disk I/O error"
            with (
                broken_disk(monkeypatch, written=written),
                pytest.raises(StoppedError, match=sentence),
            ):
                folder.submit(delta(2, key="k2"))
            with pytest.raises(StoppedError):
                folder.submit(delta(3))
            status = folder.status()
            assert "disk I/O error" in status.stopped
            assert status.stopped_since is not None
            assert status.retrying
            assert bits(folder.learner) == twin(1)
        until(lambda: folder.status().stopped is None)
        assert (folder.status().stopped_since, folder.status().retrying) == (None, False)
        assert renewed == [2 if written else 1]
        assert folder.submit(delta(2, key="k2")).seq == 2  # counts once, whatever was on the disk
        assert folder.submit(delta(3)).seq == 3
        assert bits(folder.learner) == twin(3)
    levels = [each.levelno for each in caplog.records if "disk I/O error" in each.getMessage()]
    assert levels[0] == logging.ERROR
    assert "takes deltas again" in caplog.text
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(3)


def test_a_journal_that_cannot_be_read_stops_the_folder_too(tmp_path, monkeypatch, caplog):
    def broken(self, key, data):
        with sound(self.path):
            raise sqlite3.OperationalError("disk I/O error")

    with opened(tmp_path, retry=0.05) as folder:
        folder.submit(delta(1, key="k1"))
        with monkeypatch.context() as patch:
            patch.setattr(JournalKeys, "known", broken)
            with pytest.raises(StoppedError, match="what waits could not be taken in whole"):
                folder.submit(delta(2, key="k2"))
        assert "disk I/O error" in caplog.text
        until(lambda: folder.status().stopped is None)
        assert folder.submit(delta(2, key="k2")).seq == 2
        assert bits(folder.learner) == twin(2)


def test_it_is_tried_again_as_long_as_the_disk_fails(tmp_path, monkeypatch, caplog):
    attempts, open_journal = [], writable.open_journal
    monkeypatch.setattr(healing, "AGAIN", 0.05)

    def failing(*args):
        attempts.append(1)
        if len(attempts) < 4:
            raise OSError(errno.EIO, "Input/output error")
        return open_journal(*args)

    with opened(tmp_path, retry=0.05) as folder:
        folder.submit(delta(1))
        monkeypatch.setattr(writable, "open_journal", failing)
        with broken_disk(monkeypatch, written=False), pytest.raises(StoppedError):
            folder.submit(delta(2))
        until(lambda: folder.status().stopped is None)
        assert len(attempts) == 4
        assert "(stopped for 0 s)" in caplog.text  # said again meanwhile
        folder.submit(delta(2))
        assert bits(folder.learner) == twin(2)


def test_a_damaged_folder_stays_stopped_and_says_so_again_and_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(healing, "AGAIN", 0.02)
    with opened(tmp_path, retry=0.01) as folder:
        for seq in (1, 2, 3):
            folder.submit(delta(seq))
        other = sqlite3.connect(tmp_path / JOURNAL_FILE)
        other.execute("DELETE FROM deltas WHERE seq = 2")
        other.commit()
        other.close()
        with broken_disk(monkeypatch, written=False), pytest.raises(StoppedError):
            folder.submit(delta(4))
        until(lambda: not folder.status().retrying)
        sentence = "takes no deltas, and cannot be mended from here: "
        assert sentence in folder.status().stopped
        until(lambda: caplog.text.count(sentence) >= 3)
        with pytest.raises(StoppedError, match="delta 2 is missing"):
            folder.submit(delta(4))
        assert bits(folder.learner) == twin(3)  # what was known is answered


def test_an_interrupt_while_applying_is_overcome(tmp_path, monkeypatch):
    def interrupted(self, deltas):
        raise KeyboardInterrupt

    with opened(tmp_path, retry=0.01) as folder:
        with folder.lock, monkeypatch.context() as patch:
            patch.setattr(StandIn, "apply_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                folder.submit(delta(1))
        until(lambda: folder.status().stopped is None)
        assert bits(folder.learner) == twin(1)  # it was journaled, so it counts
        folder.submit(delta(2))
        assert bits(folder.learner) == twin(2)


def test_what_was_acknowledged_here_is_not_set_aside_where_memory_lacks(tmp_path, monkeypatch):
    """Neither is the number of it on the disk, nor can it be applied again for now."""
    apply_batch = StandIn.apply_batch

    def lacking(self, deltas):
        if {"n2", "n3"} & set(deltas[0].nodes):
            raise MemoryError
        return apply_batch(self, deltas)

    with opened(tmp_path, retry=0.01) as folder:
        folder.submit(delta(1))
        monkeypatch.setattr(Acknowledged, "note", lambda self, seq: None)
        folder.submit(delta(2))
        with monkeypatch.context() as patch:
            patch.setattr(StandIn, "apply_batch", lacking)
            with pytest.raises(StoppedError, match="delta 3 could not be taken in whole"):
                folder.submit(delta(3))
            assert folder.status().retrying
        until(lambda: folder.status().stopped is None)
        assert (folder.seq, folder.status().set_aside) == (2, 1)
        folder.submit(delta(3))
        assert bits(folder.learner) == twin(3)


def test_closing_does_not_wait_for_a_disk_that_never_comes_back(tmp_path, monkeypatch):
    folder = opened(tmp_path, retry=1000.0)
    with broken_disk(monkeypatch, written=False), pytest.raises(StoppedError):
        folder.submit(delta(1))
    monkeypatch.setattr(snapshot, "sync", None)  # nor is a snapshot tried
    folder.close()
    with pytest.raises(StoppedError, match="is closed: open it again"):
        folder.submit(delta(1))
