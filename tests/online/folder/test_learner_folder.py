"""A learner in a folder: what was acknowledged is there; one writes, any number read."""

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from evergraph.core import safe_files
from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    KeyReusedError,
    LockedError,
    ResourceError,
    StoppedError,
)
from evergraph.core.safe_files import LOCK_FILE
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.learner_folder import DAY, LearnerFolder
from evergraph.online.folder.markers import folder_bytes, stored_parameters
from evergraph.online.folder.sqlite_file import check_journal
from forked import in_a_child
from stand_in import StandIn, bits, delta, filled, holds, opened, twin


def test_the_journal_comes_first_and_what_is_refused_changes_nothing(tmp_path, monkeypatch):
    seen, apply_batch = [], StandIn.apply_batch

    def look(self, deltas):
        seen.append(Journal(tmp_path / JOURNAL, readonly=True).last())
        return apply_batch(self, deltas)

    with monkeypatch.context() as patch, opened(tmp_path) as folder:
        patch.setattr(StandIn, "apply_batch", look)
        for seq in (1, 2):
            folder.submit(delta(seq))
        with pytest.raises(DataError, match="'refused' is refused"):
            folder.submit(Delta(nodes=("refused",), features=torch.zeros(1, 3), key="new"))
        assert (seen, folder.seq) == ([1, 2], 2)
        assert bits(folder.learner) == twin(2)
        assert folder.submit(delta(3, key="new")).seq == 3  # the key is still free
    assert holds(tmp_path, 3)


@pytest.mark.parametrize("compact_at", [(), (1, 2, 5)])
def test_the_same_key_twice_counts_once(tmp_path, compact_at):
    with opened(tmp_path) as folder:
        first = folder.submit(delta(1, key="k1"))
        assert folder.submit(delta(1, key="k1")) == first
        assert folder.seq == 1
    filled(tmp_path, 5, compact_at=compact_at)
    with opened(tmp_path) as folder:  # also when the delta itself has been dropped long ago
        assert folder.submit(delta(1, key="k1")) == first
        assert folder.submit(delta(5, key="k5")) == DeltaResult(seq=5, new_nodes=1, recomputed=5)
        with pytest.raises(KeyReusedError, match="'k5' belongs to delta 5"):
            folder.submit(delta(6, key="k5"))
        assert bits(folder.learner) == twin(5)


def test_a_key_that_only_a_snapshot_remembers_is_known(tmp_path):
    with opened(tmp_path / "folder") as folder:
        first = folder.submit(delta(1, key="k1"))
        folder.compact()
        shutil.copytree(tmp_path / "folder", tmp_path / "crashed")  # as a kill would leave it
    with opened(tmp_path / "crashed") as folder:
        assert folder.submit(delta(1, key="k1")) == first


@pytest.mark.parametrize("once", [True, False])
def test_an_interrupt_while_applying_is_overcome_or_stops_the_folder(tmp_path, monkeypatch, once):
    apply_batch, interrupts = StandIn.apply_batch, []

    def interrupted(self, deltas):
        results = apply_batch(self, deltas)
        if once and interrupts:  # else it comes while the learner is recovered, too
            return results
        interrupts.append(deltas)
        raise KeyboardInterrupt

    with opened(tmp_path) as folder:
        with monkeypatch.context() as patch:
            patch.setattr(StandIn, "apply_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                folder.submit(delta(1))
        if once:
            assert folder.status().stopped is None
            folder.submit(delta(2))
        else:
            with pytest.raises(StoppedError, match=r"delta 1 .*KeyboardInterrupt"):
                folder.submit(delta(2))
    assert holds(tmp_path, 2 if once else 1)  # it was journaled, so it counts


def replaced(path):
    shutil.copy(path / JOURNAL, path / "copy")
    (path / "copy").replace(path / JOURNAL)


TAKEN = {
    "deleted": shutil.rmtree,
    "moved": lambda path: path.rename(path.with_name("elsewhere")),
    "replaced": replaced,
    "without its WAL": lambda path: (path / f"{JOURNAL}-wal").unlink(),
}


@pytest.mark.parametrize("when", ["before it is written", "while it is written", "before closing"])
@pytest.mark.parametrize("how", TAKEN)
def test_nothing_is_acknowledged_once_the_journal_has_left_its_path(
    tmp_path, monkeypatch, how, when
):
    path, stopped = tmp_path / "learner", []
    folder = opened(path)
    folder.watch(on_change=lambda: None, on_stop=lambda: stopped.append(when))
    folder.submit(delta(1))
    write = Journal.write

    def writing(self, entries):
        TAKEN[how](path)
        write(self, entries)

    if when == "while it is written":
        monkeypatch.setattr(Journal, "write", writing)
    else:
        TAKEN[how](path)
    if when != "before closing":
        for _ in range(2):
            with pytest.raises(
                StoppedError, match="removed, moved or replaced while it was in use"
            ):
                folder.submit(delta(2))
        assert folder.seq == 1
        assert "removed, moved" in folder.status().stopped
    folder.close()
    assert stopped == [when]


def test_a_process_that_goes_to_another_directory_writes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(Path("learner")) as folder:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert folder.submit(delta(1)).seq == 1
        assert folder.status().stopped is None
        monkeypatch.chdir(tmp_path)


def test_other_parameters_a_bare_path_and_a_closed_folder_are_refused(tmp_path):
    filled(tmp_path, 1)
    assert stored_parameters(tmp_path) == {"decay": 0.9}
    with pytest.raises(ConfigurationError, match=r"decay=0.9, .* cannot be opened with decay=0.5"):
        LearnerFolder.open(tmp_path, make=lambda: StandIn(decay=0.5))
    with pytest.raises(ConfigurationError, match=r"call LearnerFolder.open\(path\)"):
        LearnerFolder(str(tmp_path))
    folder = opened(tmp_path)
    folder.close()
    folder.close()
    with pytest.raises(StoppedError, match="is closed: open it again"):
        folder.submit(delta(1))


@pytest.fixture
def clock(monkeypatch):
    """A clock in days, to be set."""
    days, start = {"now": 0.0}, time.time()
    monkeypatch.setattr(time, "time", lambda: start + days["now"] * DAY)
    return days


def test_old_keys_go_with_a_snapshot_and_count_as_new(tmp_path, clock):
    with opened(tmp_path, key_age=2, keys_kept=2) as folder:
        first = folder.submit(delta(1, key="k1"))
        for seq in (2, 3, 4):
            clock["now"] = float(seq)
            folder.submit(delta(seq, key=f"k{seq}"))
        assert folder.submit(delta(1, key="k1")) == first  # old, but no snapshot came yet
        clock["now"] = 5.5
        folder.compact()  # 1 to 3 are older than two days, 3 and 4 are the newest two
        assert folder.status().keys == 2
        assert folder.submit(delta(3, key="k3")).seq == 3
        assert folder.submit(delta(5, key="k1")).seq == 5  # a key like any other again
        assert (folder.status().keys, bits(folder.learner)) == (3, twin(5))
    with opened(tmp_path, readonly=True) as reader:  # the learner does not depend on keys
        assert (reader.status().keys, bits(reader.learner)) == (3, twin(5))
    with opened(tmp_path) as folder:  # by default a week, and ten thousand for ever
        clock["now"] = 1000.0
        folder.compact()
        assert folder.submit(delta(5, key="k1")).seq == 5
        assert (folder._files.key_age, folder._files.keys_kept) == (7 * DAY, 10_000)
    with pytest.raises(ConfigurationError, match="key_age"):
        opened(tmp_path, key_age=-1)


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


def test_a_snapshot_may_go_while_the_size_of_its_folder_is_told(tmp_path, monkeypatch):
    scandir = os.scandir

    def looked_into(path):
        if str(path).endswith("snapshot-1"):  # as the background removes it
            shutil.rmtree(path)
        return scandir(path)

    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        folder.compact()
        before = folder_bytes(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", looked_into)
            assert 0 < folder_bytes(tmp_path) < before


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
    monkeypatch.setattr(safe_files, "_lock", lambda *_, **__: False)  # as some file systems
    with pytest.raises(ResourceError, match=r"cannot be locked: writing needs fcntl\.flock"):
        opened(tmp_path)


def test_a_child_that_was_forked_cannot_write(tmp_path):
    """It has neither the lock nor the threads, and SQLite forbids to share a connection so."""
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        refusal = f"StoppedError: {tmp_path} was opened by process {os.getpid()}"
        assert refusal in in_a_child(lambda: folder.submit(delta(2))).err
        held, done = threading.Event(), threading.Event()

        def hold():
            with folder.lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        for change in (lambda: folder.submit(delta(2)), lambda: folder.upsert(Delta(nodes=["n9"]))):

            def ask(change=change):
                signal.alarm(30)  # ends a child that waits for a lock that nobody will release
                change()

            assert refusal in in_a_child(ask).err
        done.set()
        thread.join()
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


@pytest.mark.parametrize("left", ["", "-wal -shm"])
def test_a_mount_that_cannot_be_written_to_is_read_and_not_written(tmp_path, left):
    """left: what a killed process left of the journal."""
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
