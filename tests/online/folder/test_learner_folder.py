"""A learner in a folder: what was acknowledged is there, what was refused is not."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest
import torch

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    KeyReusedError,
    LockedError,
    ResourceError,
    StoppedError,
)
from evergraph.core.file_lock import LOCK_FILE
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder import snapshot
from evergraph.online.folder.compactor import Compactor
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, FORMAT_FILE, stored_parameters


class StandIn:
    """A running sum that depends on every bit of every delta and on their order."""

    def __init__(self, *, decay: float = 0.9) -> None:
        self.decay = decay
        self.total = torch.zeros(3)
        self.names: list[str | int] = []
        self.seq = 0

    @property
    def parameters(self):
        return {"decay": self.decay}

    def check(self, delta: Delta) -> None:
        if "refused" in delta.nodes or any(node in self.names for node in delta.nodes):
            raise DataError(f"{delta.nodes[0]!r} is refused")

    def apply(self, delta: Delta) -> DeltaResult:
        self.total.mul_(self.decay)  # in place: a snapshot must not follow
        if "breaks" in delta.nodes:
            raise MemoryError("no more of it")
        self.total += delta.features.sum(0)
        self.names += delta.nodes
        self.seq += 1
        return DeltaResult(seq=self.seq, new_nodes=len(delta.nodes), recomputed=len(self.names))

    def state(self):
        return {"total": self.total, "same": self.total, "turned": torch.ones(2, 3).t()}

    def about(self):
        return {"names": self.names, "seq": self.seq}

    def restore(self, state, about):
        self.total, self.names, self.seq = state["total"], about["names"], about["seq"]


def delta(number: int, *, key: str | None = None) -> Delta:
    features = torch.arange(3.0).view(1, 3).add(number).reciprocal()
    return Delta(nodes=(f"n{number}",), features=features, key=key)


def bits(learner) -> tuple[bytes, str]:
    return learner.total.numpy().tobytes(), json.dumps(learner.about())


def twin(number: int) -> tuple[bytes, str]:
    learner = StandIn()
    for seq in range(1, number + 1):
        learner.apply(delta(seq))
    return bits(learner)


def opened(path, **options) -> LearnerFolder:
    return LearnerFolder.open(path, make=StandIn, **{"snapshot_every": 10**6} | options)


def filled(path, number: int, *, compact_at: tuple[int, ...] = ()) -> None:
    with opened(path) as folder:
        for seq in range(1, number + 1):
            folder.submit(delta(seq, key=f"k{seq}"))
            if seq in compact_at:
                assert folder.compact() == seq


@pytest.mark.parametrize("compact_at", [(), (4,), (7,), (2, 4, 6), (3, 7)])
def test_opening_again_gives_the_same_bits(tmp_path, compact_at):
    filled(tmp_path / "new" / "folder", 7, compact_at=compact_at)
    with opened(tmp_path / "new" / "folder") as folder:
        assert folder.seq == 7
        assert bits(folder.learner) == twin(7)
        folder.submit(delta(8))
        assert bits(folder.learner) == twin(8)


def test_a_delta_is_on_the_disk_before_submit_returns(tmp_path):
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        # Another connection sees it, while nothing has been closed.
        assert Journal(tmp_path / JOURNAL, readonly=True).last() == 1


def test_the_journal_comes_first(tmp_path, monkeypatch):
    seen = []
    apply = StandIn.apply

    def look(self, delta):
        seen.append(Journal(tmp_path / JOURNAL, readonly=True).last())
        return apply(self, delta)

    monkeypatch.setattr(StandIn, "apply", look)
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        folder.submit(delta(2))
    assert seen == [1, 2]


def test_what_is_refused_changes_nothing(tmp_path):
    filled(tmp_path, 2)
    with opened(tmp_path) as folder:
        with pytest.raises(DataError, match="'refused' is refused"):
            folder.submit(Delta(nodes=("refused",), features=torch.zeros(1, 3), key="new"))
        assert (folder.seq, bits(folder.learner)) == (2, twin(2))
        assert folder.submit(delta(3, key="new")).seq == 3  # the key is still free
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(3)


@pytest.mark.parametrize("compact_at", [(), (5,), (3, 5), (1, 2, 5)])
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


def test_a_delta_that_cannot_be_applied_stops_the_folder(tmp_path):
    filled(tmp_path, 2, compact_at=(1,))
    folder = opened(tmp_path)
    broken = Delta(nodes=("breaks",), features=torch.zeros(1, 3))
    with pytest.raises(StoppedError, match=r"delta 3 could not be taken in whole \(MemoryError: "):
        folder.submit(broken)
    with pytest.raises(StoppedError, match="delta 3 could not"):
        folder.submit(delta(4))
    with pytest.raises(StoppedError):  # half a delta must not get into a snapshot
        folder.compact()
    assert "delta 3" in folder.status().stopped
    folder.close()
    with pytest.raises(DataError, match=r"delta 3 cannot be applied \(no more of it\)"):
        opened(tmp_path)


def test_an_interrupt_while_applying_stops_the_folder(tmp_path, monkeypatch):
    def interrupted(self, delta):
        raise KeyboardInterrupt

    with opened(tmp_path) as folder:
        with monkeypatch.context() as patch:
            patch.setattr(StandIn, "apply", interrupted)
            with pytest.raises(KeyboardInterrupt):
                folder.submit(delta(1))
        with pytest.raises(StoppedError, match=r"delta 1 .*KeyboardInterrupt"):
            folder.submit(delta(2))
    with opened(tmp_path) as folder:  # it was journaled, so it counts
        assert bits(folder.learner) == twin(1)


def test_a_full_disk_refuses_the_delta_and_the_folder_goes_on(tmp_path):
    with opened(tmp_path) as folder:
        folder.submit(delta(1, key="k1"))
        connection = folder._files._journal._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        large = Delta(nodes=[f"{n:099}" for n in range(99)], features=torch.ones(99, 3), key="k2")
        with pytest.raises(ResourceError, match="the disk is full: delta 2 was not taken in"):
            folder.submit(large)
        assert bits(folder.learner) == twin(1)
        assert folder.status().stopped is None
        assert folder.submit(delta(1, key="k1")).seq == 1
        connection.execute("PRAGMA max_page_count = 100000")
        assert folder.submit(delta(2, key="k2")).seq == 2
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(2)


def test_an_error_of_the_disk_leaves_no_doubt(tmp_path, monkeypatch):
    def broken(self, *args, **kwargs):
        raise sqlite3.OperationalError("disk I/O error")

    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", broken)
            with pytest.raises(StoppedError, match="disk I/O error"):
                folder.submit(delta(2))
        with pytest.raises(StoppedError):
            folder.submit(delta(2))


def test_the_newest_snapshot_damaged_means_the_one_before(tmp_path, caplog):
    filled(tmp_path, 9, compact_at=(2, 5, 8))
    path = tmp_path / "snapshot-8" / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING), opened(tmp_path) as folder:
        assert f"{path}: its contents have changed since it was written" in caplog.text
        assert folder.status().snapshot == 5
        assert bits(folder.learner) == twin(9)
        assert folder.compact() == 9
    assert sorted(p.name for p in tmp_path.glob("snapshot-*")) == ["snapshot-5", "snapshot-9"]
    with opened(tmp_path) as folder:
        assert folder.status().snapshot == 9
        assert bits(folder.learner) == twin(9)


def test_a_damaged_snapshot_is_written_again_at_the_same_delta(tmp_path):
    filled(tmp_path, 5, compact_at=(2, 5))
    (tmp_path / "snapshot-5" / "manifest.json").write_text("{")
    with opened(tmp_path) as folder:
        assert folder.compact() == 5
    with opened(tmp_path) as folder:
        assert folder.status().snapshot == 5
        assert bits(folder.learner) == twin(5)


def test_no_whole_snapshot_and_a_journal_that_begins_later_is_refused(tmp_path):
    filled(tmp_path, 6, compact_at=(2, 5))
    for number in (2, 5):
        (tmp_path / f"snapshot-{number}" / "about.json").unlink()
    with pytest.raises(DataError, match=r"no whole snapshot \(.*snapshot-5/about.json.*delta 3:"):
        opened(tmp_path)


def test_no_whole_snapshot_but_a_whole_journal_is_enough(tmp_path):
    filled(tmp_path, 6, compact_at=(4,))
    (tmp_path / "snapshot-4" / "about.json").unlink()
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(6)


def edit_journal(path, command: str, *values) -> None:
    journal = Journal(path / JOURNAL)
    journal._connection.execute(command, values)
    journal.close()


def test_a_gap_in_the_journal_is_refused(tmp_path):
    filled(tmp_path, 5)
    edit_journal(tmp_path, "DELETE FROM deltas WHERE seq = 3")
    with pytest.raises(DataError, match=r"journal.sqlite: delta 3 is missing, the next one is 4"):
        opened(tmp_path)
    with pytest.raises(DataError):  # not LockedError: a refusal gives the lock back
        opened(tmp_path)


def test_a_changed_row_is_refused(tmp_path):
    filled(tmp_path, 5)
    edit_journal(
        tmp_path, "UPDATE deltas SET bytes = "
        "CAST(substr(bytes, 1, length(bytes) - 1) || x'00' AS BLOB) WHERE seq = 4",
    )  # fmt: skip
    with pytest.raises(DataError, match=r"delta 4 cannot be read: a delta's checksum is wrong"):
        opened(tmp_path)


@pytest.mark.parametrize("compact_at", [(), (2, 4)])
def test_a_journal_that_lost_its_end_is_refused(tmp_path, compact_at):
    filled(tmp_path, 5, compact_at=compact_at)
    edit_journal(tmp_path, "DELETE FROM deltas WHERE seq = 5")
    with pytest.raises(DataError, match=r"ends with delta 4, but 5 were acknowledged"):
        opened(tmp_path)


def test_a_journal_older_than_the_snapshot_is_refused(tmp_path):
    filled(tmp_path, 5, compact_at=(4,))
    edit_journal(tmp_path, "DELETE FROM deltas WHERE seq > 2")
    (tmp_path / ACKNOWLEDGED_FILE).unlink()
    with pytest.raises(DataError, match=r"ends with delta 2, but 4 were acknowledged"):
        opened(tmp_path)


def test_a_missing_journal_is_refused(tmp_path):
    filled(tmp_path, 2)
    (tmp_path / JOURNAL).unlink()
    with pytest.raises(DataError, match=r"journal.sqlite: is missing"):
        opened(tmp_path)


def test_a_missing_format_file_is_refused(tmp_path):
    filled(tmp_path, 2)
    (tmp_path / FORMAT_FILE).unlink()
    with pytest.raises(DataError, match=r"evergraph-learner.json: is missing, but the journal"):
        opened(tmp_path)


def test_snapshots_drop_only_what_the_older_one_holds(tmp_path):
    with opened(tmp_path) as folder:
        for seq in range(1, 10):
            folder.submit(delta(seq))
            if seq in (3, 6, 8):
                folder.compact()
        assert folder._files._journal.first() == 7
    assert sorted(p.name for p in tmp_path.glob("snapshot-*")) == ["snapshot-6", "snapshot-8"]


def test_what_was_forgotten_leaves_the_folder_with_two_snapshots(tmp_path):
    secret = "a name that nobody else has"
    with opened(tmp_path) as folder:
        folder.submit(Delta(nodes=(secret,), features=torch.ones(1, 3)))
        folder.compact()
        folder.learner.names.remove(secret)
        for seq in (2, 3):
            folder.submit(delta(seq))
            folder.compact()
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_the_background_takes_snapshots_by_number_and_by_size(tmp_path):
    for name, limits in (("n", {"snapshot_every": 3}), ("b", {"snapshot_bytes": 200})):
        with opened(tmp_path / name, **limits) as folder:
            taken = taken_by(folder, 1)
            for seq in range(1, 4):
                folder.submit(delta(seq))
            assert taken.wait(20)
            assert bits(folder.learner) == twin(3)
        with opened(tmp_path / name) as folder:
            assert folder.status().snapshot > 0
            assert bits(folder.learner) == twin(3)


def taken_by(folder, number: int) -> threading.Event:
    """Return what is set when so many snapshots have been written."""
    taken, shelf = threading.Event(), folder._files._shelf
    add = shelf.add
    count = []

    def counted(*args):
        add(*args)
        count.append(1)
        if len(count) == number:
            taken.set()

    shelf.add = counted
    return taken


def test_closing_waits_for_a_snapshot_and_not_for_ever():
    compacting, go_on, done = threading.Event(), threading.Event(), []

    def compact():
        compacting.set()
        assert go_on.wait(20)
        compactor.restart()  # must not make it forget that it is to end
        done.append(True)

    compactor = Compactor(compact, every=1, size=10**6, retry=0)
    compactor.count(1)
    assert compacting.wait(20)
    closing = threading.Thread(target=compactor.close, daemon=True)
    closing.start()
    while not compactor._closing:
        pass
    go_on.set()
    closing.join(20)
    assert not closing.is_alive()
    assert done == [True]


def test_deltas_are_taken_while_a_snapshot_is_written(tmp_path, monkeypatch):
    writing, go_on = threading.Event(), threading.Event()
    write = snapshot._write_files

    def slow(*args):
        writing.set()
        assert go_on.wait(20)
        write(*args)

    monkeypatch.setattr(snapshot, "_write_files", slow)
    with opened(tmp_path, snapshot_every=2) as folder:
        for seq in (1, 2):
            folder.submit(delta(seq))
        assert writing.wait(20)
        for seq in (3, 4):  # would wait for ever if the lock were held
            folder.submit(delta(seq))
        go_on.set()
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(4)
        recovered = folder.status().snapshot
        about = json.loads((tmp_path / f"snapshot-{recovered}" / "about.json").read_text())
        assert about["seq"] == recovered  # a moment of its own, not a mixture


def test_no_room_for_a_snapshot_is_said_and_tried_again(tmp_path, monkeypatch, caplog):
    failed = threading.Event()
    write = snapshot._write_files

    def full(*args):
        if not failed.is_set():
            failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*args)

    with opened(tmp_path, snapshot_every=3, retry=0.01) as folder:
        folder.submit(delta(1))
        assert folder.compact() == 1
        monkeypatch.setattr(snapshot, "_write_files", full)
        taken = taken_by(folder, 1)
        with caplog.at_level(logging.WARNING):
            for seq in (2, 3, 4):
                folder.submit(delta(seq))
            assert taken.wait(20)
        assert "no snapshot could be taken, trying again later" in caplog.text
        assert "the disk is full" in caplog.text
    assert not list(tmp_path.glob(".aside*"))
    with opened(tmp_path) as folder:
        assert (folder.status().snapshot, bits(folder.learner)) == (4, twin(4))


def test_status_says_why_there_is_no_snapshot(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        folder.compact()
        folder.submit(delta(2))
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "_write_files", full)
            with pytest.raises(ResourceError, match="the disk is full"):
                folder.compact()
        status = folder.status()
        assert (status.seq, status.snapshot, status.deltas_since) == (2, 1, 1)
        assert "the disk is full" in status.snapshot_error
        folder.submit(delta(3))
        assert folder.compact() == 3
        assert folder.status().snapshot_error is None
        assert folder.status().deltas_since == 0


def test_a_second_writer_is_told_who_writes(tmp_path):
    with opened(tmp_path), pytest.raises(LockedError) as error:
        opened(tmp_path)
    assert f"written to by process {os.getpid()} (this one)" in str(error.value)
    opened(tmp_path).close()


def test_a_dead_process_leaves_no_lock(tmp_path):
    opened(tmp_path).close()
    (tmp_path / LOCK_FILE).write_text("4194304\n")
    opened(tmp_path).close()


HOLD = """
import sys
from pathlib import Path
from evergraph.online.folder.markers import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_gives_the_lock_back(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"by process {other.pid}: stop that one, or open"):
            opened(tmp_path)
        other.kill()
        other.wait()
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
            with pytest.raises(ConfigurationError, match="readonly=True: it takes nothing"):
                reader.submit(delta(9))


def test_a_reader_leaves_the_folder_as_it_is(tmp_path):
    filled(tmp_path, 3, compact_at=(2,))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with opened(tmp_path, readonly=True) as reader:
        assert bits(reader.learner) == twin(3)
    belongs = (f"{JOURNAL}-wal", f"{JOURNAL}-shm")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name not in belongs} == before


def test_a_reader_of_nothing_is_told_so(tmp_path):
    with pytest.raises(DataError, match=r"holds no learner yet: there is no evergraph-learner"):
        opened(tmp_path / "none", readonly=True)
    assert not (tmp_path / "none").exists()


def test_other_parameters_are_refused(tmp_path):
    filled(tmp_path, 1)
    assert stored_parameters(tmp_path) == {"decay": 0.9}
    with pytest.raises(ConfigurationError, match=r"decay=0.9, .* cannot be opened with decay=0.5"):
        LearnerFolder.open(tmp_path, make=lambda: StandIn(decay=0.5))


def test_an_unknown_format_says_what_to_do(tmp_path):
    filled(tmp_path, 1)
    content = json.loads((tmp_path / FORMAT_FILE).read_text())
    content |= {"format": 2, "evergraph": "9.1"}
    (tmp_path / FORMAT_FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"is of format 2, .* install evergraph 9.1 or newer"):
        opened(tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match=r"but it holds 'thesis.tex'"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_closed_folder_takes_nothing(tmp_path):
    folder = opened(tmp_path)
    folder.close()
    folder.close()
    with pytest.raises(StoppedError, match="is closed: open it again"):
        folder.submit(delta(1))


def test_many_threads_write_one_history(tmp_path):
    with opened(tmp_path, snapshot_every=5) as folder:

        def write(start: int) -> None:
            for number in range(start, start + 10):
                folder.submit(delta(number, key=str(number)))

        threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert folder.seq == 30
        left = bits(folder.learner)
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == left


def test_nothing_is_written_where_nothing_can_be_locked(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with pytest.raises(ResourceError, match=r"can be written to only where fcntl\.flock"):
        opened(tmp_path)
