"""Connections that keep quiet, are too many, or do not read: nobody else is kept waiting."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Any

import pytest

from evergraph.server import connections
from evergraph.server.gate import RESERVE
from evergraph.server.limits import Limits
from evergraph.server.listening import bind, server_for
from waiting import until

ASK = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOLD = b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n"
Serve = Callable[..., "Small"]


class Small:
    """An application with little behind it, at a port of its own."""

    def __init__(self, port: int, server: Any) -> None:
        self.port = port
        self.server = server
        self.gate = asyncio.Event()
        self.held = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        if scope["path"] == "/hold":
            self.held += 1
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        said = scope["client"][0].encode()
        body = said if scope["path"] != "/large" else b" " * 20_000_000
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port), 20, (address, 0))
        self.opened.append(found)
        return found

    opened: list[socket.socket]

    def ask(self, request: bytes = ASK, address: str = "127.0.0.1") -> bytes:
        line = self.connect(address)
        line.sendall(request)
        return line.recv(65_536)


@pytest.fixture(params=["httptools", "h11"])
def serve(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return what begins to serve with some limits, by each of the two parsers."""
    monkeypatch.setattr(connections, "installed", lambda name: request.param == "httptools")
    with ExitStack() as all_of_them:

        def begin(**given: Any) -> Small:
            proxies = given.pop("proxies", ())
            bound = bind("127.0.0.1", 0)
            bound.listen()
            app = Small(bound.getsockname()[1], None)
            app.opened = []
            app.server = server_for(app, limits=Limits(**given), proxies=proxies)
            thread = Thread(target=app.server.run, kwargs={"sockets": [bound]})
            thread.start()
            all_of_them.callback(thread.join)
            all_of_them.callback(lambda: [line.close() for line in app.opened])
            all_of_them.callback(setattr, app.server, "should_exit", True)
            all_of_them.callback(app.gate.set)
            return app

        yield begin


def ended(line: socket.socket) -> bytes:
    """Return what a connection is told until the other side ends it."""
    told = b""
    try:
        while part := line.recv(65_536):
            told += part
    except ConnectionResetError:
        pass
    return told


def test_silent_connections_are_ended_and_keep_nobody_out(serve: Serve) -> None:
    app = serve(connections=20, per_address=10, header_seconds=0.5)
    silent = [app.connect(f"127.0.0.{1 + i % 4}") for i in range(80)]
    begun = time.monotonic()
    assert app.ask().startswith(b"HTTP/1.1 200")
    assert app.ask(address="127.0.0.9").startswith(b"HTTP/1.1 200")
    assert app.ask(HEALTH).startswith(b"HTTP/1.1 200")
    told = [ended(line) for line in silent]
    assert time.monotonic() - begun < 10
    assert all(one == b"" or one.startswith(b"HTTP/1.1 503") for one in told)
    assert app.server.gate._all.count <= 3


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_head_that_is_never_finished_is_given_up(serve: Serve, asked_before: bool) -> None:
    app = serve(header_seconds=0.3, idle_seconds=20)
    line = app.connect()
    if asked_before:
        line.sendall(ASK)
        assert line.recv(65_536).startswith(b"HTTP/1.1 200")
    line.sendall(ASK[:9])
    begun = time.monotonic()
    told = b""
    while time.monotonic() - begun < 10:  # a byte now and then does not help
        try:
            line.sendall(b"a")
            line.settimeout(0.05)
            part = line.recv(65_536)
            told += part
            if not part:
                break
        except TimeoutError:
            continue
        except OSError:
            break
    assert time.monotonic() - begun < 8
    assert b"200" not in told


def test_a_connection_without_another_request_is_ended(serve: Serve) -> None:
    app = serve(idle_seconds=0.2)
    line = app.connect()
    line.sendall(ASK)
    assert ended(line).startswith(b"HTTP/1.1 200")


def test_health_is_told_where_all_are_being_answered_and_nothing_else_is(serve: Serve) -> None:
    app = serve(connections=4, per_address=3)
    for address in ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2"):
        app.connect(address).sendall(HOLD)
    until(lambda: app.held == 4)
    idlers = [app.connect("127.0.0.3") for _ in range(2 * RESERVE)]  # the reserve is not for them
    assert app.ask(HEALTH, "127.0.0.4").startswith(b"HTTP/1.1 200")
    refused = app.ask(ASK, "127.0.0.4")
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in refused.lower()
    assert "all connections are taken" in json.loads(refused.split(b"\r\n\r\n")[1])["error"]
    app.gate.set()
    until(lambda: app.ask(ASK, "127.0.0.4").startswith(b"HTTP/1.1 200"))
    assert len(idlers) == 2 * RESERVE


def test_an_address_has_its_share_and_a_proxy_more(serve: Serve) -> None:
    app = serve(connections=20, per_address=2, proxies=["127.0.0.5/32"])
    for _ in range(3):
        app.connect("127.0.0.2").sendall(HOLD)
        app.connect("127.0.0.5").sendall(HOLD)
    until(lambda: app.held == 5)
    assert app.ask(address="127.0.0.2").startswith(b"HTTP/1.1 503")
    assert app.ask(address="127.0.0.3").startswith(b"HTTP/1.1 200")
    assert app.ask(address="127.0.0.5").startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_dropped_and_a_slow_one_is_not(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = serve(header_seconds=0.4)
    lines = [app.connect(), app.connect()]
    for line in lines:
        line.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: len(app.server.server_state.connections) == 2)
    read = 0
    while len(app.server.server_state.connections) == 2:  # until the one that does not read is gone
        read += len(lines[0].recv(20_000))
        time.sleep(0.01)
        assert read < 20_000_000
    while read < 20_000_000 and (part := lines[0].recv(1 << 20)):
        read += len(part)
    assert read > 20_000_000  # with the head


def test_a_head_has_a_length(serve: Serve) -> None:
    app = serve()
    line = app.connect()
    told = b""
    with suppress(OSError):
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(400):
            line.sendall(b"X: " + b"a" * 1_000 + b"\r\n")
            time.sleep(0.001)
    with suppress(ConnectionResetError):
        told = line.recv(65_536)
    assert b"200" not in told
    assert app.ask().startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("more", [b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                                  b"Content-Length: 5\r\nContent-Length: 6\r\n"])  # fmt: skip
def test_a_request_with_two_ends_is_refused(serve: Serve, more: bytes) -> None:
    if b"chunked" in more and not connections.installed("httptools"):
        pytest.skip("h11 believes transfer-encoding, as RFC 9112 lets it")
    request = b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n0\r\n\r\n"
    told = serve().ask(request + ASK)
    assert told.count(b"HTTP/1.1") == 1
    assert told.startswith(b"HTTP/1.1 400")


def test_what_is_forwarded_is_believed_of_proxies_alone(serve: Serve) -> None:
    request = ASK[:-2] + b"X-Forwarded-For: 203.0.113.1, 192.0.2.7, 127.0.0.2\r\n\r\n"
    for proxies, believed in (((), b"127.0.0.1"), (("127.0.0.0/30",), b"192.0.2.7")):
        assert serve(proxies=proxies).ask(request).endswith(b"\r\n\r\n" + believed)


FEW_FILES = """
import asyncio, resource, sys
from evergraph.server.listening import bind, server_for

async def app(scope, receive, send):
    if scope["type"] != "lifespan":
        if scope["path"] == "/hold":
            await asyncio.sleep(1.5)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

bound = bind("127.0.0.1", 0)
bound.listen(2048)
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
server = server_for(app)
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))  # the learner may have taken some
print(bound.getsockname()[1], server.gate.connections, flush=True)
server.run(sockets=[bound])
"""


def test_a_process_without_files_left_waits_for_some_and_does_not_spin() -> None:
    import psutil

    child = subprocess.Popen(
        [sys.executable, "-c", FEW_FILES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        port, connections = map(int, child.stdout.readline().split())
        assert connections == 25  # a warning says so
        lines = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(40)]
        for line in lines:
            line.sendall(HOLD)
        time.sleep(0.5)
        before = sum(psutil.Process(child.pid).cpu_times()[:2])
        time.sleep(0.7)
        assert sum(psutil.Process(child.pid).cpu_times()[:2]) - before < 0.35
        told = [line.recv(100) for line in lines]
        assert sum(one.startswith(b"HTTP/1.1 200") for one in told) >= 10
        with socket.create_connection(("127.0.0.1", port), 30) as line:
            line.sendall(ASK)
            assert line.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        child.terminate()
        said = child.communicate(timeout=60)[1]
    assert "lets this process open 50 files: at most 25 connections" in said


AHEAD = pytest.mark.parametrize("serve", ["httptools"], indirect=True)  # h11 reads one at a time


@AHEAD
def test_what_was_sent_ahead_is_dropped_with_its_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    small = serve()
    small.connect().sendall(HOLD * 5)
    until(lambda: small.held == 1)
    (line,) = small.server.server_state.connections
    line.loop.call_soon_threadsafe(line.transport.abort)
    until(lambda: not small.server.server_state.connections)
    small.gate.set()
    assert small.ask(HEALTH).startswith(b"HTTP/1.1 200")
    time.sleep(0.05)
    assert small.held == 1  # the others were never begun
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@AHEAD
def test_few_requests_may_be_sent_ahead(serve: Serve) -> None:
    small = serve()
    line = small.connect()
    line.sendall(HOLD + HEALTH * connections.AHEAD)
    until(lambda: small.held == 1)
    small.gate.set()
    told = b""
    while told.count(b"HTTP/1.1 200") <= connections.AHEAD:
        told += line.recv(1 << 16)
    small.gate.clear()
    other = small.connect()
    other.sendall(HOLD + HEALTH * (connections.AHEAD + 1))
    with suppress(ConnectionResetError):
        assert other.recv(1 << 16).startswith(b"HTTP/1.1 400")
