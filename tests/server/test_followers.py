"""Processes that follow: replicas on this machine, and a service with a folder of its own."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    ResourceError,
    UnknownNodeError,
)
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.client import Client
from evergraph.server.following import Following
from evergraph.server.leader import Leader, LeaderSteps, follower_folder
from evergraph.server.limits import Limits
from evergraph.server.service import Service
from evergraph.server.tokens import Tokens

COMMAND = [sys.executable, "-m", "evergraph.cli.app", "serve"]
FOLLOW = "f" * 20


def delta(step: int) -> Delta:
    """Four nodes, joined to the ones before."""
    generator = torch.Generator().manual_seed(step)
    nodes = tuple(range(4 * step, 4 * step + 4))
    edges = tuple((node, node - 3) for node in nodes if node >= 3)
    features = torch.rand(4, 3, generator=generator)
    return Delta(nodes=nodes, features=features, labels=("x", "y", None, "x"), edges=edges)


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a service and wait until it listens."""
    command = [*COMMAND, *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)/", line):
                break
        yield process, found[1]
    finally:
        process.kill()
        process.wait()


def until(true: Callable[[], Any], seconds: float = 120.0) -> Any:
    late = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < late, "it did not happen"
        time.sleep(0.02)
    return found


def state(folder: LearnerFolder) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in folder.learner.state().items()}


@pytest.mark.slow
def test_replicas_that_are_killed_come_back_and_end_with_their_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (tmp_path / "learner", "--set", "head.width=32", "--replicas", 1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with serving(*arguments) as (process, url):
        client = Client(url)

        def alive() -> int:
            told: dict[str, Any] = client.status()["replicas"][1]
            return told["pid"] if told["alive"] and not told["lag"] else 0

        first = until(alive)
        client.submit(delta(0))
        os.kill(first, signal.SIGKILL)
        client.submit(delta(1))  # the writer goes on meanwhile
        second = until(lambda: (pid := alive()) != first and pid)
        assert client.status()["replicas"][1]["seq"] == 2
        process.kill()
        until(lambda: not psutil.pid_exists(second))
        assert not [*tmp_path.glob("evergraph-*")]  # nor are files left behind
        told = process.stderr.read()
        assert f"replica 1 (process {first}) ended with SIGKILL: it is started again in" in told


def test_a_follower_that_is_killed_goes_on_and_is_the_same_bit_for_bit(
    tmp_path: Path, live: Any, learner: Any
) -> None:
    leading = LearnerFolder.open(tmp_path / "leader", make=learner)
    url = live(create_app(leading))
    for step in range(3):
        Client(url).submit(delta(step))
    leading.compact()
    Client(url).submit(delta(3))
    with serving(tmp_path / "own", "--follow", url) as (process, own):

        def told() -> list[Any]:
            return [
                (one["role"], one["seq"], one["lag"]) for one in Client(own).status()["replicas"]
            ]

        until(lambda: told() == [("follower", 4, 0)])
        assert Client(own).status()["replicas"][0]["seconds"] == 0.0
        assert Client(own).submit(delta(4))["seq"] == 5  # passed on to the leader
        assert leading.seq == 5
        assert Client(own).predict([16], after=5) == Client(url).predict([16])
        process.kill()
    for step in (5, 6):
        Client(url).submit(delta(step))
    again = Leader(url)
    service = Service(follower_folder(tmp_path / "own", again), Limits(), leader=again)
    assert service.folder.seq == 5  # what it had taken in is on its disk
    LeaderSteps(service, again, wait=0.0)()
    assert service.processes()[0].seq == 7
    assert state(service.folder) == state(leading)
    service.close()


@pytest.fixture
def leader(tmp_path: Path, live: Any, learner: Any) -> tuple[LearnerFolder, str]:
    """A folder that is served to who has the token, and where."""
    folder = LearnerFolder.open(tmp_path / "leader", make=learner)
    tokens = Tokens((("follow", FOLLOW), ("read", "r" * 20)))
    return folder, live(create_app(folder, tokens=tokens, limits=Limits(seconds=5.0)))


def test_a_follower_begins_with_a_snapshot_or_with_nothing(
    leader: tuple[LearnerFolder, str], tmp_path: Path
) -> None:
    folder, url = leader
    for name in ("without", "with"):
        own = follower_folder(tmp_path / name, Leader(url, FOLLOW))
        assert own.status().snapshot == (3 if name == "with" else 0)
        service = Service(own, Limits(), leader=(asked := Leader(url, FOLLOW)))
        for step in range(3 if name == "without" else 0):
            folder.submit(delta(step))
        LeaderSteps(service, asked, wait=0.0)()
        assert own.seq == folder.seq == 3
        assert state(own) == state(folder)
        assert service.processes()[0].lag == 0
        service.close()
        folder.compact()


def test_a_thread_that_cannot_follow_stops_its_process_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))

    def step() -> float:
        raise DataError("delta 3 is missing")

    try:
        following = Following(step)
        following.start()
        following.join()
        until(lambda: told)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert following.failed
    assert "cannot follow any more, and stops: delta 3 is missing" in caplog.text
    following.close()


def test_a_follower_of_another_history_is_refused(
    leader: tuple[LearnerFolder, str], tmp_path: Path
) -> None:
    _, url = leader
    asked = Leader(url, FOLLOW)
    service = Service(follower_folder(tmp_path / "own", asked), Limits(), leader=asked)
    service.folder.submit(delta(0))
    with pytest.raises(DataError, match="must follow the service that it began with: it knows 1"):
        LeaderSteps(service, asked, wait=0.0)()
    service.close()


def test_a_follower_with_as_many_deltas_of_another_history_is_refused(
    leader: tuple[LearnerFolder, str], tmp_path: Path
) -> None:
    folder, url = leader
    asked = Leader(url, FOLLOW)
    service = Service(follower_folder(tmp_path / "own", asked), Limits(), leader=asked)
    service.folder.submit(delta(0))
    folder.submit(replace(delta(0), labels=("y", "y", None, "x")))
    folder.submit(delta(1))
    with pytest.raises(DataError, match=r"delta 1 of http://.* is another one"):
        LeaderSteps(service, asked, wait=0.0)()
    assert service.folder.seq == 1
    service.close()


def test_who_may_only_read_may_not_follow(
    leader: tuple[LearnerFolder, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="may read, and this needs one that may follow"):
        follower_folder(tmp_path / "own", Leader(leader[1], "r" * 20))
    assert not (tmp_path / "own").exists()


def test_a_leader_that_is_away_is_waited_for(
    leader: tuple[LearnerFolder, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, url = leader
    folder.submit(delta(0))
    asked = Leader(url, FOLLOW)
    service = Service(follower_folder(tmp_path / "own", asked), Limits(), leader=asked)
    step = LeaderSteps(service, asked, wait=0.0)
    step()
    asked.url = "http://127.0.0.1:9"
    assert step() > 0
    assert "no service answers" in caplog.text
    assert service.processes()[0].seconds > 0  # nobody knows how far the leader is
    asked.url = url
    folder.submit(delta(1))
    step()
    assert service.folder.seq == 2
    assert service.processes()[0].seconds == 0.0
    service.close()


def test_a_follower_goes_on_after_deltas_that_were_taken_in_together(
    leader: tuple[LearnerFolder, str], tmp_path: Path
) -> None:
    folder, url = leader
    folder.submit_many([delta(0), delta(1)])
    for known in (2, 3):  # begun, and opened again
        asked = Leader(url, FOLLOW)
        service = Service(follower_folder(tmp_path / "own", asked), Limits(), leader=asked)
        LeaderSteps(service, asked, wait=0.0)()
        assert service.folder.seq == known
        service.close()
        folder.submit(delta(known))


def test_a_follower_notices_what_its_leader_has_set_aside(
    leader: tuple[LearnerFolder, str], tmp_path: Path
) -> None:
    folder, url = leader
    asked = Leader(url, FOLLOW)
    service = Service(follower_folder(tmp_path / "own", asked), Limits(), leader=asked)
    for step in range(4):
        folder.submit(delta(step))
    steps = LeaderSteps(service, asked, wait=0.0)
    steps()
    assert service.folder.seq == 4
    steps()
    # As ``evergraph skip`` does, with the leader stopped meanwhile.
    journal = folder._files._journal
    journal.aside.skip({4: "wrong"})
    folder._files._set_aside = 1
    with pytest.raises(DataError, match=r"has set aside delta 4, which .*own knows: move that"):
        steps()
    service.close()
    fresh = Leader(url, FOLLOW)  # one that begins now knows nothing of it
    other = Service(follower_folder(tmp_path / "other", fresh), Limits(), leader=fresh)
    LeaderSteps(other, fresh, wait=0.0)()
    assert other.folder.seq == 4
    other.close()


def test_a_follower_waits_for_its_own_disk(
    leader: tuple[LearnerFolder, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = leader
    asked = Leader(url, FOLLOW)
    service = Service(follower_folder(tmp_path / "own", asked), Limits(), leader=asked)
    folder.submit(delta(0))
    steps = LeaderSteps(service, asked, wait=0.0)

    def broken(self: Journal, entries: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", broken)
        assert steps() > 0
    until(lambda: service.folder.status().stopped is None)
    steps()
    assert service.folder.seq == 1
    service.close()


def test_the_view_of_a_learner_that_failed_is_left(
    tmp_path: Path, learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions go on while it is recovered, and come from the new one then."""
    service = Service(LearnerFolder.open(tmp_path / "own", make=learner), Limits())
    service._submit(delta(0), None)
    before = service._predict([0], False)
    apply_batch = type(service.folder.learner).apply_batch

    def failing(self: Any, deltas: Any) -> Any:
        apply_batch(self, deltas)
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(type(service.folder.learner), "apply_batch", failing)
    with pytest.raises(ResourceError, match="delta 2 could not be applied"):
        service._submit(delta(1), None)
    assert service._predict([0], False) == before
    assert service._view.status.seq == 1
    with pytest.raises(UnknownNodeError):
        service._predict([4], False)  # half of it is nowhere to be seen
    service.close()
