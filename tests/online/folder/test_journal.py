"""The journal, of which nothing is missing, and snapshots: when they are taken, what they drop."""

import errno
import json
import logging
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import torch

from evergraph.core.errors import DataError, KeyReusedError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, JournalEntry
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import with_check
from evergraph.online.folder.snapshot import Compactor, JournalLoad, read_snapshot, snapshots_in
from evergraph.online.folder.sqlite_file import empty_wal, open_for_reading, open_for_writing
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from stand_in import (
    StandIn,
    bits,
    delta,
    filled,
    holds,
    opened,
    twin,
    wait_for_snapshot,
    write_snapshot,
)
from waiting import gated, until


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
    third = 350_000  # numbers of a delta
    for seq in range(1, 6):
        append(journal, seq, data(seq, third), key=str(seq))
    whole = path.stat().st_size
    journal.drop(4)
    assert journal.first() == 5
    journal.tidy()
    assert path.stat().st_size < whole
    assert [entry.seq for entry in journal.after(4)] == [5]
    assert journal.keys.known("1", data(1, third))[0] == 1
    journal.tidy()
    assert path.with_name(f"{JOURNAL_FILE}-wal").stat().st_size == 0
    assert path.stat().st_size < 1.5 * len(data(5, third))
    assert data(5, third)[-1000:] in path.read_bytes()
    assert data(4, third)[-1000:] not in path.read_bytes()
    journal.begin_anew(5, keys=False)
    assert (journal.first(), journal.last()) == (6, 5)  # the next, and the one that a snapshot has


def test_a_replay_begins_with_a_whole_batch(journal):
    journal.write([JournalEntry(seq, 1, None, data(seq)) for seq in (1, 2)])
    assert [[entry.seq for entry in batch] for batch in journal.batches_after(0)] == [[1, 2]]
    with pytest.raises(DataError, match="delta 2 belongs to batch 1, so a replay cannot start"):
        next(journal.batches_after(1))


def test_what_cannot_be_read_is_refused(path):
    path.write_bytes(b"no database, only words" * 100)
    with pytest.raises(DataError, match=r"journal.sqlite: cannot be used \(file is not a database"):
        Journal(path)
    path.unlink()
    Journal(path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 6")
    later.close()
    for readonly in (True, False):
        with pytest.raises(DataError, match="of layout 6, this version of evergraph reads 5"):
            Journal(path, readonly=readonly)


def test_commits_wait_for_the_disk_dropped_rows_are_overwritten_and_others_have_ten_seconds(
    tmp_path,
):
    def told(connection, *names):
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


def test_a_wal_may_go_while_a_reader_looks_for_it(tmp_path, monkeypatch):
    """The last writer removes it on closing."""
    filled(tmp_path, 1)
    stat = Path.stat

    def last_look(path, **how):
        found = stat(path, **how)
        if path.name.endswith("-wal"):
            path.unlink()
        return found

    (tmp_path / f"{JOURNAL_FILE}-wal").touch()
    monkeypatch.setattr(Path, "stat", last_look)
    with opened(tmp_path, readonly=True) as reader:
        assert reader.refresh() == 0


STATE = {
    "floats": torch.tensor([[0.1, float("nan")], [-0.0, 3.0]]),
    "doubles": torch.tensor([1 / 3], dtype=torch.float64),
    "numbers": torch.tensor([2**62]),
    "flags": torch.tensor([True, False]),
    "none": torch.zeros(0, 5),
    "scalar": torch.tensor(7),
}
ABOUT = {"names": ["a", "\udc80", 3], "share": 0.1}


def write(folder, seq, about=ABOUT):
    return write_snapshot(folder, seq, STATE, about)


def test_comes_back_bit_for_bit_and_does_not_hang_on_the_file(tmp_path):
    path = write(tmp_path, 12)
    assert path == tmp_path / "snapshot-12"
    assert sorted(p.name for p in path.iterdir()) == [
        "about.json",
        "manifest.json",
        "state.safetensors",
    ]
    back = read_snapshot(path)
    (path / snapshot.STATE).write_bytes(b"")
    assert (back.seq, back.about) == (12, ABOUT)
    assert back.state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert back.state[name].dtype == value.dtype
        assert back.state[name].shape == value.shape
        assert back.state[name].numpy().tobytes() == value.numpy().tobytes()
    back.state["numbers"] += 1
    assert back.state["numbers"].item() == 2**62 + 1


def test_another_name_or_format_is_refused_and_the_newest_come_first(tmp_path):
    for seq in (9, 100, 20):
        write(tmp_path, seq)
    for other in ("snapshot-x", ".aside-7"):
        (tmp_path / other).mkdir()
    assert [seq for seq, _ in snapshots_in(tmp_path)] == [100, 20, 9]
    (tmp_path / "snapshot-9").rename(tmp_path / "snapshot-4")
    with pytest.raises(DataError, match=r"snapshot-4/manifest.json: belongs to snapshot-9"):
        read_snapshot(tmp_path / "snapshot-4")
    path = tmp_path / "snapshot-20" / "manifest.json"
    path.write_text(json.dumps(with_check(json.loads(path.read_text()) | {"format": 9})))
    with pytest.raises(DataError, match="is of format 9, this version of evergraph reads 4"):
        read_snapshot(path.parent)


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, named = [], tmp_path / "snapshot-5"
    monkeypatch.setattr(snapshot, "sync", lambda path: synced.append((path.name, named.exists())))
    write(tmp_path, 5)
    before = [".aside-5", "about.json", "manifest.json", "state.safetensors"]
    assert sorted(name for name, there in synced if not there) == before
    assert synced[-1] == (tmp_path.name, True)


def test_snapshots_drop_only_what_the_older_one_holds_and_then_all_of_it(tmp_path):
    secret = "a name that nobody else has"
    with opened(tmp_path) as folder:
        folder.submit(Delta(nodes=(secret,), features=torch.ones(1, 3)))
        folder.compact()
        folder.learner.names.remove(secret)
        for seq in range(2, 10):
            folder.submit(delta(seq))
            if seq in (3, 6, 8):
                folder.compact()
        assert Journal(tmp_path / JOURNAL_FILE, readonly=True).first() == 7
        assert sorted(p.name for p in tmp_path.glob("snapshot-*")) == ["snapshot-6", "snapshot-8"]
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not [path for path in files if secret.encode() in path.read_bytes()]


@pytest.fixture
def clock(monkeypatch):
    """Make every batch take a second of the processor."""
    apply_batch, seconds = StandIn.apply_batch, [0.0]

    def heavy(self, deltas):
        seconds[0] += 1.0
        return apply_batch(self, deltas)

    monkeypatch.setattr(StandIn, "apply_batch", heavy)
    monkeypatch.setattr(time, "thread_time", lambda: seconds[0])
    return seconds


@pytest.mark.parametrize(
    "rule", [{"snapshot_every": 3}, {"snapshot_bytes": 200}, {"replay_seconds": 2.5}]
)
def test_the_background_takes_snapshots_by_number_size_and_seconds(tmp_path, clock, rule):
    with opened(tmp_path, **{"replay_seconds": 100.0, "close_seconds": 100.0} | rule) as folder:
        folder.submit(delta(1))
        assert (folder.status().replay_seconds, folder.status().snapshot_time) == (1.0, None)
        for seq in (2, 3):
            folder.submit(delta(seq))
        wait_for_snapshot(folder)
        assert abs(folder.status().snapshot_time - time.time()) < 60
        assert bits(folder.learner) == twin(3)
    with opened(tmp_path) as folder:
        assert folder.status().snapshot > 0
        assert bits(folder.learner) == twin(3)


def test_closing_waits_for_a_snapshot_and_not_for_ever():
    compacting, go_on, done = threading.Event(), threading.Event(), []

    def compact():
        compacting.set()
        assert go_on.wait(20)
        compactor.due = False  # must not make it forget that it is to end
        done.append(True)

    compactor = Compactor(compact, JournalLoad(), retry=0)
    compactor.wake()
    assert compacting.wait(20)
    closing = threading.Thread(target=compactor.close, daemon=True)
    closing.start()
    until(lambda: compactor._closing)
    go_on.set()
    closing.join(20)
    assert not closing.is_alive()
    assert done == [True]


def test_what_a_snapshot_waits_for_does_not_put_off_the_next():
    compactor = Compactor(lambda: time.sleep(0.1), JournalLoad(), retry=0)
    compactor.wake()
    until(lambda: compactor.snapshot_seconds > 0)
    compactor.close()
    assert compactor.snapshot_seconds < 0.1  # else a restart would have to repeat more


def test_deltas_are_taken_while_a_snapshot_waits_for_the_disk(tmp_path, monkeypatch):
    writing, go_on = gated(monkeypatch, snapshot, "sync")
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


def test_predictions_do_not_wait_while_the_state_is_written_and_deltas_do(tmp_path, monkeypatch):
    make, rows = lambda: OnlineLearner(head=AnalyticHead(width=8)), torch.eye(20)
    with LearnerFolder.open(tmp_path, make=make) as folder, ThreadPoolExecutor() as pool:
        folder.submit(Delta(nodes=range(20), features=rows, labels="xy" * 10))
        before = {name: value.clone() for name, value in folder.learner.state().items()}
        view = folder.learner.frozen()
        writing, go_on = gated(monkeypatch, snapshot, "write_arrays")
        compacting = pool.submit(folder.compact)
        assert writing.wait(20)
        assert view.predict([0]) == ["x"]  # would wait for ever if it needed the lock
        assert folder.learner.explain(0).node == 0
        more = Delta(updated=[3], updated_features=rows[:1], late=[(1, "x")], edges=[(3, 5)])
        submitted = pool.submit(folder.submit, more)
        assert not wait([submitted], timeout=0.05).done
        go_on.set()
        assert (compacting.result(), submitted.result().seq) == (1, 2)
        found = snapshot.read_snapshot(tmp_path / "snapshot-1").state
        assert {name: found[name].equal(value) for name, value in before.items()} == dict.fromkeys(
            before, True
        )  # nothing of the second delta got into the snapshot


def test_no_room_for_a_snapshot_is_said_and_tried_again(tmp_path, monkeypatch, caplog):
    sync, answers = snapshot.sync, iter([OSError(errno.ENOSPC, "No space left on device")])

    def full(path):
        for error in answers:  # once
            raise error
        sync(path)

    with opened(tmp_path, snapshot_every=3, retry=0.01) as folder:
        folder.submit(delta(1))
        assert folder.compact() == 1
        monkeypatch.setattr(snapshot, "sync", full)
        with caplog.at_level(logging.WARNING):
            for seq in (2, 3, 4):
                folder.submit(delta(seq))
            wait_for_snapshot(folder, after=1)
        assert "the snapshot failed and will be tried again" in caplog.text
        assert "the disk is full" in caplog.text
    assert not list(tmp_path.glob(".aside*"))
    with opened(tmp_path) as folder:
        assert (folder.status().snapshot, bits(folder.learner)) == (4, twin(4))


def test_snapshots_that_only_save_time_take_a_quarter_of_it_at_most(tmp_path):
    """Numbers and bytes do not wait for that."""
    with opened(tmp_path, replay_seconds=1.0, snapshot_bytes=1000) as folder:
        compactor, woken = folder._files._compactor, []
        compactor.snapshot_seconds = 2.0
        compactor.wake = lambda: woken.append(compactor.counted)
        compactor.count(JournalLoad(deltas=5, bytes=5, seconds=5.9))
        assert not woken
        compactor.count(JournalLoad(seconds=0.2))
        assert [each.deltas for each in woken] == [5]
        for many in (JournalLoad(deltas=10**6), JournalLoad(bytes=1000)):
            compactor.count_anew()
            compactor.count(many)
            assert woken.pop() == many


def test_closing_takes_a_snapshot_where_a_restart_would_take_long(tmp_path, clock):
    def taken(**options):
        with opened(tmp_path, **options) as folder:
            if took:  # what takes long to read takes long to write: it must save more than that
                folder._files._compactor.snapshot_seconds = took
            folder.submit(delta(folder.seq + 1))
        return sorted(path.name for path in tmp_path.glob("snapshot-*"))

    took = 0.0
    assert taken() == []  # a second: as fast again
    assert taken() == ["snapshot-2"]
    with opened(tmp_path) as folder:
        assert (folder.status().replay_seconds, bits(folder.learner)) == (0.0, twin(2))
    took = 10.0
    assert [taken()[-1] for _ in range(3)] == ["snapshot-2"] * 3
    with opened(tmp_path, replay_seconds=2.5) as folder:  # what a restart took counts too
        wait_for_snapshot(folder, after=2)
        assert (folder.status().snapshot, bits(folder.learner)) == (5, twin(5))


def test_a_snapshot_that_fails_at_the_end_is_said_and_nothing_is_lost(
    tmp_path, clock, monkeypatch, caplog
):
    with monkeypatch.context() as patch, opened(tmp_path, close_seconds=0.0) as folder:
        folder.submit(delta(1))
        patch.setattr(snapshot, "sync", lambda _: 1 / 0)
        folder.close()
    assert "the snapshot on closing failed" in caplog.text
    assert holds(tmp_path, 1)
