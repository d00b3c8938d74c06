"""Snapshots: when they are taken, what they drop, and that nobody waits for them."""

from __future__ import annotations

import errno
import json
import logging
import threading

import pytest
import torch

from evergraph.core.errors import (
    ResourceError,
)
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot
from evergraph.online.folder.compactor import Compactor
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from stand_in import bits, delta, opened, twin, wait_for_snapshot
from waiting import until


def test_snapshots_drop_only_what_the_older_one_holds(tmp_path):
    with opened(tmp_path) as folder:
        for seq in range(1, 10):
            folder.submit(delta(seq))
            if seq in (3, 6, 8):
                folder.compact()
        assert Journal(tmp_path / JOURNAL_FILE, readonly=True).first() == 7
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
            for seq in range(1, 4):
                folder.submit(delta(seq))
            wait_for_snapshot(folder)
            assert bits(folder.learner) == twin(3)
        with opened(tmp_path / name) as folder:
            assert folder.status().snapshot > 0
            assert bits(folder.learner) == twin(3)


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
    until(lambda: compactor._closing)
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


def test_predictions_do_not_wait_while_the_state_is_written(tmp_path, monkeypatch):
    writing, go_on = threading.Event(), threading.Event()
    write = snapshot._write

    def slow(*args):
        writing.set()
        assert go_on.wait(20)
        write(*args)

    with LearnerFolder.open(tmp_path, make=OnlineLearner) as folder:
        known = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y"))
        folder.submit(known)
        view = folder.learner.frozen()
        monkeypatch.setattr(snapshot, "_write", slow)
        compacting = threading.Thread(target=folder.compact)
        compacting.start()
        assert writing.wait(20)
        assert view.predict(["a"]) == ["x"]  # would wait for ever if it needed the lock
        assert folder.learner.explain("a").node == "a"
        late = threading.Thread(target=folder.submit, args=(Delta(late=(("b", "x"),)),))
        late.start()
        late.join(0.2)
        assert late.is_alive()  # half of its change must not get into the snapshot
        go_on.set()
        compacting.join(20)
        late.join(20)
        assert (folder.seq, folder.status().snapshot) == (2, 1)


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
        with caplog.at_level(logging.WARNING):
            for seq in (2, 3, 4):
                folder.submit(delta(seq))
            wait_for_snapshot(folder, after=1)
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
