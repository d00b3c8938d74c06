"""One writes to a folder, any number read it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from evergraph.core.errors import ConfigurationError, DataError, LockedError, ResourceError
from evergraph.core.file_lock import LOCK_FILE
from evergraph.online.folder.checkup import check_journal
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from forked import in_a_child
from stand_in import bits, delta, filled, holds, opened, twin


def test_a_second_writer_is_told_who_writes(tmp_path):
    with opened(tmp_path), pytest.raises(LockedError) as error:
        opened(tmp_path)
    assert f"written to by process {os.getpid()} (this one)" in str(error.value)
    (tmp_path / LOCK_FILE).write_text("4194304\n")  # a dead process leaves no lock
    opened(tmp_path).close()


def test_readers_need_no_lock_and_follow(tmp_path):
    with opened(tmp_path) as writer:
        writer.submit(delta(1))
        with opened(tmp_path, readonly=True) as reader, opened(tmp_path, readonly=True) as other:
            assert bits(reader.learner) == twin(1)
            for seq in range(2, 8):
                writer.submit(delta(seq))
                if seq in (3, 5):
                    writer.compact()
            assert bits(reader.learner) == twin(1)
            # Deltas 2 and 3 are dropped by now: the reader begins with a snapshot.
            assert reader.refresh() == 6
            assert bits(reader.learner) == twin(7)
            writer.submit(delta(8))
            assert reader.refresh() == 1
            assert reader.refresh() == 0
            assert bits(reader.learner) == twin(8)
            assert other.refresh() == 7
            assert reader.status().readonly
            with pytest.raises(ConfigurationError, match="readonly=True: it cannot be changed"):
                reader.submit(delta(9))


def test_a_reader_leaves_the_folder_as_it_is_and_makes_none(tmp_path):
    with pytest.raises(DataError, match=r"holds no learner yet: there is no evergraph-learner"):
        opened(tmp_path / "learner", readonly=True)
    assert not (tmp_path / "learner").exists()
    filled(tmp_path / "learner", 3, compact_at=(2,))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with opened(tmp_path / "learner", readonly=True) as reader:
        assert bits(reader.learner) == twin(3)
    belongs = (f"{JOURNAL}-wal", f"{JOURNAL}-shm")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name not in belongs} == before


def test_nothing_is_written_where_nothing_can_be_locked(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with pytest.raises(ResourceError, match=r"cannot be locked: writing needs fcntl\.flock"):
        opened(tmp_path)


def test_a_child_that_was_forked_cannot_write(tmp_path):
    """It has neither the lock nor the threads, and SQLite forbids to share a connection so."""
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        said = in_a_child(lambda: folder.submit(delta(2))).err
        assert f"StoppedError: {tmp_path} was opened by process {os.getpid()}" in said
        folder.submit(delta(2))
    assert holds(tmp_path, 2)


@contextmanager
def mounted_to_read(path):
    """Mount a folder over itself so that nobody can write to it."""
    if os.getuid() or not shutil.which("mount"):
        pytest.skip("only root may mount")
    try:
        subprocess.run(["mount", "--bind", path, path], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting is not allowed here ({error.stderr!r})")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
        yield
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("left", ["", "-wal", "-wal -shm"])
def test_a_mount_that_cannot_be_written_to_is_read_and_not_written(tmp_path, left):
    """left: what a killed process left of the journal, and a copy took along."""
    source, path = tmp_path / "source", tmp_path / "learner"
    with opened(source) as folder:
        for number in range(1, 6):
            folder.submit(delta(number))
            if number == 3:
                folder.compact()
        if left:
            shutil.copytree(source, path)
    if not left:
        shutil.copytree(source, path)
    for suffix in {"-wal", "-shm"} - set(left.split()):
        (path / f"{JOURNAL}{suffix}").unlink(missing_ok=True)
    with mounted_to_read(path):
        with opened(path, readonly=True) as folder:
            assert bits(folder.learner) == twin(5)
            assert folder.refresh() == 0
        with pytest.raises(ResourceError, match=r"cannot be written \(Read-only file system\)"):
            opened(path)
        assert list(check_journal(path / JOURNAL)) == []
