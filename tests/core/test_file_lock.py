"""Locks: one holder at a time, given back however a process ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evergraph.core.file_lock import FileLock, is_held, is_running

HOLD = """
import sys
from pathlib import Path
from evergraph.core.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]), RuntimeError)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_one_is_told_who_has_it_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, RuntimeError) as lock:
        assert lock.holds
        with pytest.raises(RuntimeError, match=rf"^process {os.getpid()} \(this one\)$"):
            FileLock(path, RuntimeError)
    FileLock(path, RuntimeError).close()
    assert path.exists()  # removing it might remove another's


def test_a_killed_process_gives_it_back(tmp_path: Path) -> None:
    path, pipe = tmp_path / "lock", subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RuntimeError, match=f"^process {other.pid}$"):
            FileLock(path, RuntimeError)
        other.kill()
        other.wait()
    FileLock(path, RuntimeError).close()


def test_one_that_nobody_releases_goes_with_its_owner(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", RuntimeError)
    assert lock.holds
    del lock
    FileLock(tmp_path / "lock", RuntimeError).close()


def test_waiting_ends_when_the_other_is_done(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "lock", RuntimeError)
    had = threading.Event()

    def wait() -> None:
        FileLock(tmp_path / "lock", RuntimeError, wait=True).close()
        had.set()

    other = threading.Thread(target=wait)
    other.start()
    assert not had.wait(0.2)
    first.close()
    other.join(10)
    assert had.is_set()


def test_where_nothing_can_be_locked_the_caller_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        assert not FileLock(tmp_path / "lock", RuntimeError).holds
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    assert not FileLock(tmp_path / "lock", RuntimeError).holds


def test_a_disk_without_room_for_the_number_locks_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with FileLock(tmp_path / "lock", RuntimeError) as lock:
        monkeypatch.undo()
        assert lock.holds
        with pytest.raises(RuntimeError, match="process unknown"):
            FileLock(tmp_path / "lock", RuntimeError)


FORK = """
import os, sys, time
from pathlib import Path
from evergraph.core.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]), RuntimeError)
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
sys.stdin.read()
"""


def test_a_child_that_was_forked_keeps_no_lock(tmp_path: Path) -> None:
    path, pipe = tmp_path / "lock", subprocess.PIPE
    command = [sys.executable, "-c", FORK, str(path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        assert other.wait() == 0
        assert is_running(child)
        FileLock(path, RuntimeError).close()  # was refused: process N, which was dead


INHERIT = """
import subprocess, sys
from pathlib import Path
from evergraph.core.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]), RuntimeError)
number = lock._file.fileno()
child = subprocess.Popen(["cat"], pass_fds=[number])
print(child.pid, flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="who has a file open, Linux tells")
def test_who_inherited_it_from_a_dead_process_is_named(tmp_path: Path) -> None:
    path, pipe = tmp_path / "lock", subprocess.PIPE
    command = [sys.executable, "-c", INHERIT, str(path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        assert other.wait() == 0
        said = rf"^process {child}, started by process {other.pid}, which has ended$"
        with pytest.raises(RuntimeError, match=said):
            FileLock(path, RuntimeError)
        assert is_held(path)
    until_free(path)


def until_free(path: Path) -> None:
    deadline = time.monotonic() + 20
    while is_held(path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    FileLock(path, RuntimeError).close()
