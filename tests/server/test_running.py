"""The service as a process of its own: signals, sockets, large bodies."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from evergraph.core.errors import ConfigurationError
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.running import bind, check_address

COMMAND = [sys.executable, "-m", "evergraph.cli.app", "serve"]


@contextmanager
def serving(path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a service and wait until it listens."""
    arguments = [*COMMAND, str(path), "--port", "0", "--set", "head.width=32"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/", line):
                break
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()


def post(port: int, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


def test_a_service_from_start_to_stop(tmp_path: Path, learner: Any) -> None:
    folder = tmp_path / "learner"
    with serving(folder) as (process, port):
        huge_bodies_are_refused_unread(process.pid, port)
        if hasattr(signal, "SIGHUP"):
            process.send_signal(signal.SIGHUP)  # would end a process that does not look after it
        acknowledged = stopped_while_learning(process, port)
        assert process.wait(60) == 0
        said = process.stderr.read()
        assert "there is nothing to reload" in said
        assert "stopped: everything acknowledged is on the disk" in said
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
        assert "at most 32000000 bytes" in json.loads(answer.read())["error"]
        connection.close()
    assert psutil.Process(pid).memory_info().rss - before < 80_000_000


def stopped_while_learning(process: subprocess.Popen[str], port: int) -> set[str]:
    """Send nodes from several threads, stop the service, return those that were acknowledged."""
    acknowledged: set[str] = set()

    def send(sender: int) -> None:
        for number in range(1000):
            node = f"{sender}-{number}"
            body = {"nodes": [node], "features": [[1.0, 2.0]], "labels": ["x"]}
            try:
                status, _ = post(port, "/v1/deltas", body)
            except (OSError, http.client.HTTPException):
                return  # it has stopped
            assert status in (200, 503)
            if status == 200:
                acknowledged.add(node)
            if len(acknowledged) == 20:
                process.send_signal(signal.SIGTERM)

    threads = [Thread(target=send, args=(sender,)) for sender in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(acknowledged) >= 20
    return acknowledged


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_other_addresses_need_tokens(host: str) -> None:
    with pytest.raises(ConfigurationError, match="unless --token-file"):
        check_address(host, has_tokens=False)
    check_address(host, has_tokens=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    check_address(host, has_tokens=False)


def test_small_answers_are_sent_at_once() -> None:
    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP  # what asyncio looks at before TCP_NODELAY


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"must be free to listen on, not .*:{port} "):
            bind("127.0.0.1", port)
