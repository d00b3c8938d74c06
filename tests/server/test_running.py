"""The service as a process of its own: signals, sockets, and a process that only reads."""

import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import time
from threading import Thread
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import torch
from fastapi.testclient import TestClient

from evergraph.core.errors import ConfigurationError
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.http import Limits
from evergraph.server.running import bind, check_address
from forked_command import Forked


def post(port: int, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


def test_a_service_from_start_to_stop(tmp_path, learner):
    folder = tmp_path / "learner"
    learned_by = ("--set", "head.width=32", "--set", 'head.views=["0|1|2"]')
    process = Forked("serve", str(folder), "--port", "0", *learned_by)
    try:
        for line in process.stderr:
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/", line):
                break
        port = int(found[1])
        huge_bodies_are_refused_unread(process.pid, port)
        process.send_signal(signal.SIGHUP)  # would end a process that does not look after it
        assert any("there is nothing to reload" in line for line in process.stderr)
        acknowledged = stopped_while_learning(process, port)
        assert process.wait() == 0
    finally:
        process.kill()
    said = process.stderr.read()
    assert "stopped: everything acknowledged is on disk" in said
    with LearnerFolder.open(folder, make=learner) as found:
        assert found.learner.status().nodes >= len(acknowledged)
        found.learner.embed(sorted(acknowledged))  # raises where one of them is not known
        assert found.seq == found.learner.status().seq == found.learner.status().nodes


def huge_bodies_are_refused_unread(pid: int, port: int) -> None:
    before = psutil.Process(pid).memory_info().rss
    for chunked in (False, True):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        parts = (b" " * 1_000_000 for _ in range(100))
        headers = {"Content-Type": "application/json"}
        if not chunked:
            headers["Content-Length"] = "100000000"
        connection.request("POST", "/v1/deltas", parts, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        assert answer.status == 413
        assert "at most 1000000 bytes" in json.loads(answer.read())["error"]
        connection.close()
    assert psutil.Process(pid).memory_info().rss - before < 80_000_000


def stopped_while_learning(process: Forked, port: int) -> set[str]:
    """Send nodes from several threads, stop the service, return those that were acknowledged."""
    acknowledged = set()

    def send(sender: int) -> None:
        for number in range(30):
            node = f"{sender}-{number}"
            body = {"nodes": [node], "features": [[1.0, 2.0]], "labels": ["x"]}
            try:
                status, _ = post(port, "/v1/deltas", body)
            except (OSError, http.client.HTTPException):
                return  # it has stopped
            assert status in (200, 503)
            if status == 200:
                acknowledged.add(node)
            if node == "0-9":
                process.send_signal(signal.SIGTERM)

    threads = [Thread(target=send, args=(sender,)) for sender in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(acknowledged) >= 10
    return acknowledged


def test_other_addresses_need_tokens():
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", ""):
        with pytest.raises(ConfigurationError, match="unless there is a --token-file"):
            check_address(host, has_tokens=False)
        check_address(host, has_tokens=True)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        check_address(host, has_tokens=False)


def test_a_port_that_is_taken_is_one_sentence():
    with bind("127.0.0.1", 0) as taken:
        assert taken.proto == socket.IPPROTO_TCP  # what asyncio looks at before TCP_NODELAY
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"must be free to listen on: .*:{port} "):
            bind("127.0.0.1", port)


HERE = "http://127.0.0.1:8000"
QUESTION = {"ids": ["0-0", "0-1", "0-2"], "all": True}


def delta(step: int, generator: torch.Generator) -> Delta:
    """Three nodes that are joined to the first three, so that every delta moves these."""
    nodes = tuple(f"{step}-{place}" for place in range(3))
    edges = [(node, f"0-{place}") for place, node in enumerate(nodes)] if step else []
    features = torch.rand(3, 4, generator=generator)
    return Delta(nodes=nodes, features=features, labels=("x", "y", None), edges=tuple(edges))


def test_a_reader_answers_from_whole_deltas_and_refuses_changes(tmp_path, learner):
    generator, known, expected = torch.Generator().manual_seed(0), learner(), {}
    deltas = [delta(step, generator) for step in range(8)]
    for step, each in enumerate(deltas, 1):
        known.apply(each)
        expected[step] = known.predict_proba(QUESTION["ids"])[1]
    writer = LearnerFolder.open(tmp_path / "learner", make=learner)
    writer.submit(deltas[0])
    reader = LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True)
    with TestClient(create_app(reader, limits=Limits(patience=20.0)), base_url=HERE) as client:
        teaching = Thread(target=lambda: [writer.submit(each) for each in deltas[1:]])
        teaching.start()
        seen = [0]
        while seen[-1] < 8:
            answer = client.post(f"/v1/predictions?after={seen[-1] + 1}", json=QUESTION)
            told = answer.json()
            rows = torch.tensor([one["probabilities"] for one in told["predictions"]])
            assert torch.allclose(rows, expected[told["seq"]], atol=1e-5)
            seen.append(told["seq"])
        teaching.join()
        assert seen == sorted(seen)
        status = client.get("/v1/status").json()
        assert (status["role"], status["seq"], status["lag"]) == ("reader", 8, 0)
        assert 'process_lag{role="reader"} 0.0' in client.get("/metrics").text
        assert client.get("/readyz").json() == {"status": "ready"}
        for path, body in (("forget", {"ids": ["0-0"]}), ("compact", {}), ("upsert", None)):
            sent = body if body is not None else {"nodes": ["n"], "features": [[1.0] * 4]}
            answer = client.post(f"/v1/{path}", json=sent)
            assert answer.status_code == 403
            assert answer.json()["error"].startswith("this process is read-only")
        assert client.get("/v1/keys?prefix=k").status_code == 403
    writer.close()


def test_a_reader_that_cannot_follow_is_told_to_stop(tmp_path, learner, monkeypatch):
    LearnerFolder.open(tmp_path / "learner", make=learner).close()
    reader = LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True)
    killed = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(number))
    app = create_app(reader)
    with TestClient(app, base_url=HERE):
        failing = Mock(side_effect=RuntimeError("on purpose"))
        monkeypatch.setattr(reader, "refresh", failing)
        while not killed:
            time.sleep(0.01)
    assert app.state.failed.is_set()


def test_a_service_whose_folder_was_deleted_does_not_say_that_all_is_on_the_disk(tmp_path):
    process = Forked("serve", str(tmp_path / "learner"), "--port", "0")
    try:
        port = next(
            int(found[1])
            for line in process.stderr
            if (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/", line))
        )
        assert post(port, "/v1/deltas", {"nodes": ["a"], "features": [[1.0]]})[0] == 200
        shutil.rmtree(tmp_path / "learner")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 1
    finally:
        process.kill()
    said = process.stderr.read()
    assert "the journal was removed" in said
    assert "everything acknowledged is on disk" not in said


def test_a_service_is_not_ready_once_its_folder_was_deleted(client, monkeypatch):
    ended = []
    monkeypatch.setattr("os.kill", lambda process, number: ended.append(number))
    shutil.rmtree(client.folder.path)
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "stopped")
    assert client.post("/v1/deltas", json=MORE).status_code == 503
    assert client.get("/v1/nodes/a").status_code == 200
    assert ended == [signal.SIGTERM]


MORE = {"nodes": ["d"], "features": [[1.0, 0.1]], "labels": ["x"], "key": "more"}


def test_a_broken_disk_is_said_and_ends_the_process(client, monkeypatch):
    """Whoever supervises it starts it again; what was begun is answered first."""
    ended = []
    monkeypatch.setattr("os.kill", lambda process, number: ended.append(number))

    def broken(self, entries):
        raise sqlite3.OperationalError(f"{self.path}: disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", broken)
        answer = client.post("/v1/deltas", json=MORE)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "disk I/O error" in answer.json()["error"]
    told = client.get("/v1/status").json()
    assert told["seq"] == 1
    assert "disk I/O error" in told["stopped"]
    assert client.post("/v1/deltas", json=MORE).status_code == 503
    assert client.get("/v1/nodes/a").status_code == 200  # what is known is answered
    ready = client.get("/readyz")
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "2")
    assert ready.json() == {"status": "stopped", "why": told["stopped"]}
    assert {"evergraph_stopped 1.0", "evergraph_ready 0.0"} <= {
        *client.get("/metrics").text.splitlines()
    }
    assert client.get("/healthz").status_code == 200
    assert str(client.folder.path.parent) not in answer.text + told["stopped"]  # files by name
    assert ended == [signal.SIGTERM]
