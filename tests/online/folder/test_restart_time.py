"""How long a restart takes: snapshots by what applying took, at the end, and what is told."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from itertools import pairwise

import pytest

from evergraph.online.folder import recovery
from evergraph.online.folder.compactor import Compactor
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.status import Replaying
from stand_in import StandIn, bits, delta, filled, opened, twin, wait_for_snapshot


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


def test_heavy_deltas_bring_a_snapshot_forward(tmp_path, clock):
    with opened(tmp_path, replay_seconds=2.5) as folder:
        for seq in (1, 2):
            folder.submit(delta(seq))
        assert folder.status().replay_seconds == 2.0
        assert folder.status().snapshot_time is None
        folder.submit(delta(3))
        wait_for_snapshot(folder)
        status = folder.status()
        assert (status.snapshot, status.replay_seconds) == (3, 0.0)
        assert abs(status.snapshot_time - time.time()) < 60
        assert bits(folder.learner) == twin(3)


def test_what_a_restart_took_counts_too(tmp_path, clock):
    with opened(tmp_path, close_seconds=100.0) as folder:
        for seq in (1, 2, 3):
            folder.submit(delta(seq))
    with opened(tmp_path, replay_seconds=2.5) as folder:
        wait_for_snapshot(folder)
        assert folder.status().snapshot == 3


def test_snapshots_that_only_save_time_take_a_quarter_of_it_at_most():
    taken = []

    def compact():
        began = time.monotonic()
        compactor.restart()
        time.sleep(0.1)
        taken.append((began, time.monotonic()))

    compactor = Compactor(compact, every=10**6, size=10**9, retry=1.0, seconds=1.0)
    end = time.monotonic() + 20
    while len(taken) < 3 and time.monotonic() < end:
        compactor.count(1, seconds=5.0)
        time.sleep(0.005)
    compactor.close()
    for (began, ended), (following, _) in pairwise(taken):
        assert following - ended >= 3 * (ended - began) - 0.02
    assert len(taken) >= 3


def test_numbers_and_bytes_do_not_wait_for_that():
    done = threading.Event()
    compactor = Compactor(done.set, every=1, size=10**9, retry=1.0)
    compactor._not_before = time.monotonic() + 1000
    compactor.count(1)
    assert done.wait(20)
    compactor.close()


def test_closing_takes_a_snapshot_where_a_restart_would_take_long(tmp_path, clock):
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
    assert not list(tmp_path.glob("snapshot-*"))  # a second: as fast again
    with opened(tmp_path) as folder:
        folder.submit(delta(2))
    assert [path.name for path in tmp_path.glob("snapshot-*")] == ["snapshot-2"]
    with opened(tmp_path) as folder:
        assert (folder.status().replay_seconds, bits(folder.learner)) == (0.0, twin(2))


def test_a_few_rows_do_not_have_a_large_state_written(tmp_path, clock):
    """What takes long to read takes long to write: it must save more than that."""
    filled(tmp_path, 1, compact_at=(1,))
    with opened(tmp_path) as folder:
        folder._files._compactor.took = 10.0  # as if reading the snapshot had taken that
        for seq in range(2, 10):
            folder.submit(delta(seq))
    assert [path.name for path in tmp_path.glob("snapshot-*")] == ["snapshot-1"]


def test_a_snapshot_that_fails_at_the_end_is_said_and_nothing_is_lost(
    tmp_path, clock, monkeypatch, caplog
):
    from evergraph.online.folder import snapshot

    with monkeypatch.context() as patch, opened(tmp_path, close_seconds=0.0) as folder:
        folder.submit(delta(1))
        patch.setattr(snapshot, "_write_files", lambda _: 1 / 0)
        folder.close()
    assert "no snapshot could be taken at the end" in caplog.text
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(1)


def test_a_recovery_tells_how_far_it_is(tmp_path, clock, monkeypatch, caplog):
    with opened(tmp_path, close_seconds=100.0) as folder:
        for seq in range(1, 5):
            folder.submit(delta(seq))
    monkeypatch.setattr(recovery, "TOLD", 0.0)
    monkeypatch.setattr(recovery, "LOGGED", 0.0)
    for readonly in (True, False):
        told = []
        with caplog.at_level(logging.INFO):
            opened(tmp_path, readonly=readonly, progress=told.append, close_seconds=9.0).close()
        assert [each.done for each in told] == [0, 1, 2, 3, 4, 4]
        assert {each.of for each in told} == {4}
        assert told[0] == Replaying(0, 4, 0.0)  # nobody knows yet
        assert told[-1] == Replaying(4, 4, 0.0)
        assert "2 of 4 deltas are applied again, about 0 s are left" in caplog.text


def test_it_is_not_told_more_than_twice_a_second(tmp_path):
    filled(tmp_path, 50)
    told = []
    opened(tmp_path, progress=told.append).close()
    assert (told[0].done, told[-1].done) == (0, 50)
    assert len(told) < 20


def layout_3(path) -> None:
    """Make the journal of a folder one of the version before."""
    connection = sqlite3.connect(path / JOURNAL_FILE)
    for table in ("costs", "set_aside", "rewritten", "trying"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 3")
    connection.commit()
    connection.close()


def test_a_journal_of_the_version_before_is_read_and_brought_up_to_date(tmp_path):
    filled(tmp_path, 2)
    with opened(tmp_path) as folder:
        folder.submit_many([delta(3), delta(4)])
        left = bits(folder.learner)
    layout_3(tmp_path)
    told = []
    with opened(tmp_path, readonly=True, progress=told.append) as reader:
        assert (reader.seq, reader.status().set_aside) == (4, 0)
        assert bits(reader.learner) == left
        assert told[0] == Replaying(0, 4, 0.0)
        with opened(tmp_path) as folder:
            assert bits(folder.learner) == left
            folder.submit(delta(5))
            assert reader.refresh() == 1  # it sees that there are other tables now
            assert bits(reader.learner) == bits(folder.learner)
