"""A service says how it does from its first moment on."""

import http.client
import json
import re
import signal
import time
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest

from evergraph.core.errors import DataError
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.recovery import Replaying
from evergraph.online.learner import OnlineLearner
from evergraph.server import startup
from evergraph.server.app import create_app
from evergraph.server.bodies import DeltaBody
from evergraph.server.startup import Notifier, Starting
from forked_command import Forked
from served import served
from waiting import until


def ask(port: int, path: str) -> tuple[int, Any, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told, answer.headers


def test_it_lives_at_once_and_is_ready_when_it_has_caught_up(tmp_path, learner, first, caplog):
    caplog.set_level("INFO", "evergraph")
    told, go = Event(), Event()

    def make(progress):
        progress(Replaying(30, 120, 4.5))
        told.set()
        go.wait()
        folder = LearnerFolder.open(tmp_path / "learner", make=learner)
        folder.submit(DeltaBody(**first).delta())
        return create_app(folder)

    with served(starting := Starting(make, notifier=Notifier())) as (port, _):
        assert told.wait(30)
        assert ask(port, "/healthz")[:2] == (200, {"status": "ok"})
        status, body, headers = ask(port, "/readyz")
        assert status == 503
        assert body == {"status": "recovering", "done": 30, "of": 120, "seconds_left": 4.5}
        status, body, headers = ask(port, "/v1/status")
        assert (status, headers["retry-after"]) == (503, "2")
        assert "recovering" in body["error"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-request-id"]
        assert "recovering at http://here/: 120 deltas" in caplog.text
        assert "listening on" not in caplog.text
        go.set()
        while ask(port, "/readyz")[0] != 200:
            time.sleep(0.01)
        assert ask(port, "/readyz")[1] == {"status": "ready"}
        assert ask(port, "/v1/status")[1]["nodes"] == 6
        assert "listening on http://here/" in caplog.text
        assert starting.app is not None
        kept = starting.app
    assert kept.state.stopping.is_set()
    with LearnerFolder.open(tmp_path / "learner", make=learner) as again:  # its lock was let go
        assert again.seq == 1


def test_what_cannot_be_opened_ends_the_server_with_its_reason():
    make = Mock(side_effect=DataError("the journal is damaged"))
    with served(starting := Starting(make, notifier=Notifier())) as (_, server):
        until(lambda: server.should_exit)
    assert str(starting.failed) == "the journal is damaged"


@pytest.mark.parametrize("asks", [True, False], ids=["between deltas", "in a long one"])
def test_a_recovery_is_left_at_once(asks, monkeypatch):
    monkeypatch.setattr(startup, "SHUTDOWN_SECONDS", 60.0 if asks else 0.1)
    began, over = Event(), Event()

    def make(progress):
        began.set()
        while asks:
            progress(Replaying(0, 1, 0.0))
            time.sleep(0.01)
        over.wait()

    with served(starting := Starting(make, notifier=Notifier())):
        assert began.wait(30)
    assert starting.abandoned is not asks
    assert starting.failed is None
    over.set()


def test_a_process_answers_while_it_recovers_and_stops_at_once(tmp_path, learner, first):
    folder = tmp_path / "learner"
    with LearnerFolder.open(folder, make=learner, close_seconds=100.0) as kept:
        for number in range(3):
            body = {"nodes": [f"n{number}"], "features": [[1.0, 2.0]], "labels": ["x"]}
            kept.submit(DeltaBody(**body).delta())

    def slowly():  # deltas take a minute to apply, and so does a start that must
        OnlineLearner.apply_batch = lambda *_: time.sleep(60)

    process = Forked("serve", str(folder), "--port", "0", before=slowly)
    try:
        line = process.stderr.readline()
        found = re.search(r"recovering at http://127.0.0.1:(\d+)/: 3 deltas", line)
        assert found, line
        port = int(found[1])
        assert ask(port, "/healthz")[0] == 200
        status, told, _ = ask(port, "/readyz")
        assert (status, told["status"], told["of"]) == (503, "recovering", 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(50) == 0
        assert "listening on" not in process.stderr.read()
    finally:
        process.kill()
    with LearnerFolder.open(folder, make=learner) as again:
        assert again.seq == 3
