"""Deltas that cannot be applied, and disks that fail: what is set aside, refused, and stops."""

import errno
import logging
import os
import resource
import sqlite3
from contextlib import closing, contextmanager
from unittest.mock import Mock

import pytest
import torch

import real_folder
from evergraph.core.errors import DataError, ResourceError, StoppedError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot, sqlite_file
from evergraph.online.folder.checkup import listed
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, JournalEntry, JournalKeys
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, Acknowledged
from evergraph.online.folder.sqlite_file import check_journal, sound
from evergraph.online.knowledge import Knowledge
from stand_in import StandIn, bits, delta, failing, filled, holds, opened, twin

BROKEN = Delta(nodes=("breaks",), features=torch.zeros(1, 3), key="broken")


def written(path, *batches) -> None:
    """Write batches down as a process does that is killed before it applies them."""
    journal = Journal(path / JOURNAL_FILE)
    for batch in batches:
        first = journal.last() + 1
        rows = enumerate(batch, first)
        journal.write([JournalEntry(n, first, e.key, delta_to_bytes(e)) for n, e in rows])
    journal.close()


@pytest.mark.parametrize("compact_at", [(), (1,)])
def test_what_cannot_be_applied_is_refused_and_the_folder_goes_on(tmp_path, caplog, compact_at):
    filled(tmp_path, 2, compact_at=compact_at)
    renewed = []
    with opened(tmp_path) as folder:
        before = folder.learner
        folder.watch(on_change=lambda: renewed.append(folder.learner))
        with pytest.raises(ResourceError, match=r"delta 3 could not be applied \(MemoryError: no "):
            folder.submit(BROKEN)
        assert renewed == [folder.learner]
        assert folder.learner is not before  # half of the delta is in that one
        assert (folder.seq, bits(folder.learner)) == (2, twin(2))
        status = folder.status()
        assert (status.stopped, status.set_aside, status.keys) == (None, 1, 2)
        assert folder.submit(delta(1, key="k1")).seq == 1  # known as before
        assert folder.submit(delta(3, key="broken")).seq == 3  # number and key are free
        assert folder.compact() == 3
        folder.submit(delta(4))
    assert caplog.text.count("set aside delta 3, which could not be applied") == 1
    assert list(check_journal(tmp_path / JOURNAL_FILE)) == []  # the next delta got its number
    assert holds(tmp_path, 4)
    (kept,) = listed(tmp_path)
    assert (kept.seq, kept.key, kept.why) == (3, "broken", "MemoryError: no more of it")
    assert kept.size == len(delta_to_bytes(BROKEN))
    # Nobody can recover past a gap, so it is no excuse that another delta had the number once.
    with closing(Journal(tmp_path / JOURNAL_FILE)) as journal:
        journal.connection.execute("DELETE FROM deltas WHERE seq = 3")
    assert list(check_journal(tmp_path / JOURNAL_FILE)) == ["delta 3 is missing, the next one is 4"]


def test_an_unforeseen_error_is_logged_whole_and_refused(tmp_path, caplog, monkeypatch):
    filled(tmp_path, 1)
    with opened(tmp_path) as folder:
        with monkeypatch.context() as patch:
            failing(patch, ZeroDivisionError("division by zero"), "n2")
            with pytest.raises(DataError, match=r"delta 2 .*ZeroDivisionError: division by zero"):
                folder.submit(delta(2))
        assert "Traceback" in caplog.text
        assert folder.submit(delta(2)).seq == 2
        assert bits(folder.learner) == twin(2)


def test_on_opening_its_batch_is_set_aside_with_a_sentence(tmp_path, caplog):
    filled(tmp_path, 2)
    written(tmp_path, [delta(7), BROKEN])
    with caplog.at_level(logging.WARNING), opened(tmp_path) as folder:
        (line,) = [each.getMessage() for each in caplog.records]
        assert "set aside deltas 3 to 4, which could not be applied (MemoryError: no mo" in line
        assert (folder.seq, folder.status().set_aside) == (2, 2)
        assert folder.submit(delta(3, key="broken")).seq == 3
    assert holds(tmp_path, 3)
    assert [each.seq for each in listed(tmp_path)] == [3, 4]
    with closing(Journal(tmp_path / JOURNAL_FILE, readonly=True)) as journal:
        kept = journal.connection.execute("SELECT bytes FROM set_aside ORDER BY rowid").fetchall()
    assert kept == [(delta_to_bytes(delta(7)),), (delta_to_bytes(BROKEN),)]


def acknowledge(path, seq: int) -> None:
    noted = Acknowledged(path / ACKNOWLEDGED_FILE)
    noted.note(seq)
    noted.close()


@pytest.mark.parametrize("behind", [(), ([delta(4)],)])
def test_what_was_acknowledged_is_never_set_aside(tmp_path, behind):
    """Behind which something was written was applied: after a power cut the number may lag."""
    filled(tmp_path, 2)
    written(tmp_path, [BROKEN], *behind)
    if not behind:
        acknowledge(tmp_path, 3)
    for _ in range(2):
        with pytest.raises(DataError, match=r"delta 3 cannot be applied .* evergraph check .* --s"):
            opened(tmp_path)
    assert listed(tmp_path) == []


def test_neither_an_interrupt_nor_what_went_well_at_last_is_held_against_a_delta(
    tmp_path, monkeypatch
):
    """Applied in a recovery, then the power is cut, and the number of it is lost."""
    filled(tmp_path, 2)
    written(tmp_path, [delta(3)])
    with monkeypatch.context() as patch:
        failing(patch, KeyboardInterrupt(), "n3")
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path)
    old = (tmp_path / ACKNOWLEDGED_FILE).read_bytes()
    for _ in range(2):
        assert holds(tmp_path, 3)
        (tmp_path / ACKNOWLEDGED_FILE).write_bytes(old)


def test_a_reader_leaves_out_what_cannot_be_applied(tmp_path):
    filled(tmp_path, 2)
    with opened(tmp_path, readonly=True) as early:
        written(tmp_path, [BROKEN])
        with opened(tmp_path, readonly=True) as late:
            assert early.refresh() == 0
            for reader in (early, late):
                assert (reader.seq, bits(reader.learner)) == (2, twin(2))
            with opened(tmp_path) as folder:
                folder.submit(delta(3))
                for reader in (early, late):
                    assert reader.refresh() == 1
                    assert bits(reader.learner) == twin(3)


def test_a_reader_that_lacked_memory_goes_on_once_the_writer_has_it(tmp_path, monkeypatch):
    filled(tmp_path, 2)
    written(tmp_path, [delta(3)])
    with monkeypatch.context() as patch:
        failing(patch, MemoryError(), "n3")
        reader = opened(tmp_path, readonly=True)
        assert (reader.refresh(), reader.seq) == (0, 2)
    assert (reader.refresh(), reader.seq) == (0, 2)  # nothing has happened since
    acknowledge(tmp_path, 3)
    assert reader.refresh() == 1
    assert bits(reader.learner) == twin(3)
    reader.close()


def test_a_reader_that_knows_what_is_then_set_aside_begins_anew(tmp_path, monkeypatch):
    filled(tmp_path, 2, compact_at=(1,))
    renewed = []
    with opened(tmp_path) as folder:
        reader = opened(tmp_path, readonly=True)
        before = reader.learner
        reader.watch(on_change=lambda: renewed.append(reader.learner is before))
        apply_batch = StandIn.apply_batch

        def look(self, deltas):
            if self is folder.learner:
                monkeypatch.setattr(StandIn, "apply_batch", apply_batch)
                reader.refresh()  # it knows the delta, and the writer does not
                raise MemoryError
            return apply_batch(self, deltas)

        monkeypatch.setattr(StandIn, "apply_batch", look)
        with pytest.raises(ResourceError):
            folder.submit(delta(7))
        assert reader.seq == 3
        folder.submit(delta(3))
        assert reader.refresh() == 0
        assert (renewed, bits(reader.learner)) == ([True, False], twin(3))
        reader.close()


def test_predictions_go_on_from_before_and_no_half_is_seen(tmp_path, monkeypatch):
    known = Delta(nodes="ab", features=torch.eye(2), labels="xy", edges=(("a", "b"),))
    more = Delta(nodes="c", features=torch.ones(1, 2), labels="y", edges=(("c", "a"),))
    twin, update_head = real_folder.make(), Knowledge.update_head
    with real_folder.opened(tmp_path) as folder:
        folder.submit(known)
        view, before = folder.learner.frozen(), folder.learner
        answers = view.predict(["a", "b"])

        def half(self, **given):
            assert view.predict(["a", "b"]) == answers
            if self.graph.num_nodes == 3:  # not while it is recovered
                raise MemoryError
            return update_head(self, **given)

        with monkeypatch.context() as patch:
            patch.setattr(Knowledge, "update_head", half)
            with pytest.raises(ResourceError, match="delta 2 could not be applied"):
                folder.submit(more)
        assert view.predict(["a", "b"]) == answers
        assert folder.learner is not before
        folder.submit(more)
        for each in (known, more):
            twin.apply(each)
        assert real_folder.bits(folder.learner) == real_folder.bits(twin)


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


def test_a_quota_is_a_full_disk(tmp_path, monkeypatch):
    broken = Mock(side_effect=sqlite3.OperationalError("disk I/O error"))  # as SQLite calls it
    reached = Mock(side_effect=OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)))
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        with monkeypatch.context() as patch:
            patch.setattr(folder._files._journal.keys, "insert", broken)
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
