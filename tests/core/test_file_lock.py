"""Locks: one holder at a time, given back however a process ends."""

import errno
import fcntl
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from evergraph.core import safe_files
from evergraph.core.safe_files import FileLock, remove_left, scratch_beside
from forked import begun


def said_by_a_child(work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of a process that does some work, and the number that it says."""
    receive, send = os.pipe()
    child = begun(work, out=send)
    os.close(send)
    with os.fdopen(receive) as said:
        return child, int(said.readline())


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def test_a_second_one_is_told_who_has_it_until_it_is_released(tmp_path):
    path = tmp_path / "lock"
    with FileLock(path, RuntimeError) as lock:
        assert lock.holds
        with pytest.raises(RuntimeError, match=rf"^process {os.getpid()} \(this one\)$"):
            FileLock(path, RuntimeError)
    FileLock(path, RuntimeError).close()
    assert path.exists()  # removing it might remove another's


def test_a_killed_process_gives_it_back(tmp_path):
    path = tmp_path / "lock"

    def hold():
        with FileLock(path, RuntimeError):
            say(0)
            signal.pause()

    child, _ = said_by_a_child(hold)
    with pytest.raises(RuntimeError, match=f"^process {child}$"):
        FileLock(path, RuntimeError)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    FileLock(path, RuntimeError).close()


def test_one_that_nobody_releases_goes_with_its_owner(tmp_path):
    lock = FileLock(tmp_path / "lock", RuntimeError)
    assert lock.holds
    del lock
    FileLock(tmp_path / "lock", RuntimeError).close()


def test_waiting_ends_when_the_other_is_done(tmp_path):
    first = FileLock(tmp_path / "lock", RuntimeError)
    had = threading.Event()

    def wait():
        FileLock(tmp_path / "lock", RuntimeError, wait=True).close()
        had.set()

    other = threading.Thread(target=wait)
    other.start()
    assert not had.wait(0.2)
    first.close()
    other.join(10)
    assert had.is_set()


@pytest.mark.parametrize("seen", [False, True], ids=["as it was made", "and seen without a lock"])
def test_a_folder_that_another_process_takes_for_one_that_was_left_is_made_anew(
    tmp_path, monkeypatch, seen
):
    made, make = [], tempfile.TemporaryDirectory

    def made_beside_another_process(**options):
        scratch = make(**options)
        if not made:
            remove_left(tmp_path / "learner")
        made.append(scratch.name)
        return scratch

    monkeypatch.setattr(tempfile, "TemporaryDirectory", made_beside_another_process)
    with scratch_beside(tmp_path / "learner") as used:
        assert made == [made[0], str(used)]
        if seen:  # before it was locked
            monkeypatch.setattr(safe_files, "is_held", lambda lock: False)
        remove_left(tmp_path / "learner")
        assert [path.name for path in used.iterdir()] == ["lock"]
    assert list(tmp_path.iterdir()) == []


def test_unlockable_places_are_reported(tmp_path, monkeypatch):
    refuse = Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not FileLock(tmp_path / "lock", RuntimeError).holds


def test_a_disk_without_room_for_the_number_locks_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with FileLock(tmp_path / "lock", RuntimeError) as lock:
        monkeypatch.undo()
        assert lock.holds
        with pytest.raises(RuntimeError, match="process unknown"):
            FileLock(tmp_path / "lock", RuntimeError)


def test_a_child_that_was_forked_keeps_no_lock(tmp_path):
    path = tmp_path / "lock"

    def fork():
        lock = FileLock(path, RuntimeError)
        if os.fork():
            assert lock.holds
        else:
            say(os.getpid())
            signal.pause()

    parent, child = said_by_a_child(fork)
    assert os.waitpid(parent, 0)[1] == 0
    os.kill(child, 0)  # it lives
    FileLock(path, RuntimeError).close()  # was refused: process N, which was dead
    os.kill(child, signal.SIGKILL)
