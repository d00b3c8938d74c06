"""Connections that keep quiet or are too many: nobody else is kept waiting."""

import asyncio
import logging
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, cast

import pytest
import uvicorn

from evergraph.server.http import Limits
from evergraph.server.running import _allow_files
from forked import in_a_child
from served import served
from waiting import until

ASK = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOLD = b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n"
Serve = Callable[..., "Small"]


class Clock:
    """The timers of a loop of a second or more: they wait until a test lets the time pass."""

    def __init__(self, loop: Any) -> None:
        self.loop, self.now = loop, 0.0
        self.timers: list[tuple[float, asyncio.TimerHandle, Callable[[], object]]] = []
        later = loop.call_later

        def call_later(seconds: float, call: Callable[..., object], *given: Any) -> Any:
            if seconds < 1:
                return later(seconds, call, *given)
            timer = later(1000.0, call, *given)
            self.timers.append((self.now + seconds, timer, partial(call, *given)))
            return timer

        loop.call_later = call_later

    def let_pass(self, seconds: float) -> None:
        def ring() -> None:
            self.now += seconds
            for when, timer, call in self.timers[:]:
                if when <= self.now and not timer.cancelled():
                    timer.cancel()
                    call()

        self.loop.call_soon_threadsafe(ring)


class Small:
    """An application with little behind it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.held = 0
        self.opened: list[socket.socket] = []
        self.port, self.server = 0, cast("uvicorn.Server", None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            self.clock = Clock(asyncio.get_running_loop())
            return
        if scope["path"] == "/hold":
            self.held += 1
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        said = scope["client"][0].encode()
        length = (b"content-length", b"%d" % len(said))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": said})

    def connect(self) -> socket.socket:
        self.opened.append(socket.create_connection(("127.0.0.1", self.port), 20))
        return self.opened[-1]

    def ask(self, request: bytes = ASK) -> bytes:
        line = self.connect()
        line.sendall(request)
        answer = line.recv(65_536)
        # The body may come by itself.
        head, _, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        while length is not None and len(body) < int(length[1]) and (more := line.recv(65_536)):
            answer, body = answer + more, body + more
        return answer


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as all_of_them:

        def begin(*, proxies: Sequence[str] = (), **limits: Any) -> Small:
            app = Small()
            given = {"limits": Limits(**limits), "proxies": proxies}
            app.port, app.server = all_of_them.enter_context(served(app, **given))
            all_of_them.callback(lambda: [line.close() for line in app.opened])
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


def test_slow_heads_and_silence_keep_nobody_out(serve):
    app = serve(header_seconds=5)
    slow = [app.connect() for _ in range(200)]
    for line in slow[100:]:
        line.sendall(ASK[:9])
    assert app.ask(HEALTH).startswith(b"HTTP/1.1 200")
    app.clock.let_pass(5)
    assert [ended(line) for line in slow] == [b""] * 200
    until(lambda: len(app.server.server_state.connections) <= 1)


def test_where_too_many_come_the_oldest_without_a_request_gives_way(serve):
    app = serve(connections=4, header_seconds=20)
    for _ in range(3):
        app.connect().sendall(HOLD)
    until(lambda: app.held == 3)
    silent = [app.connect() for _ in range(20)]
    assert app.ask(HEALTH).startswith(b"HTTP/1.1 200")
    assert ended(silent[0]) == b""
    app.gate.set()
    assert all(line.recv(100).startswith(b"HTTP/1.1 200") for line in app.opened[:3])


UPLOAD = b"POST /v1/deltas HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"


@pytest.mark.parametrize(
    ("asked", "begun_next", "more"),
    [(ASK, ASK[:9], b"a"), (ASK, b"\r\n", b"\r\n"), (UPLOAD, b"{", b" ")],
    ids=["a second head", "empty lines", "a body that was answered already"],
)
def test_a_head_that_is_never_finished_is_given_up(serve, asked, begun_next, more):
    app = serve(header_seconds=5, idle_seconds=5)
    line = app.connect()
    line.sendall(asked)  # what begins another request is no better than the first
    assert line.recv(65_536).startswith(b"HTTP/1.1 200")
    line.sendall(begun_next)
    with suppress(ConnectionError):
        for _ in range(4):  # a byte now and then does not help
            app.clock.let_pass(3)
            line.sendall(more)
            app.ask(HEALTH)
    assert b"200" not in ended(line)


def test_who_asks_nothing_more_is_given_up(serve):
    app = serve(idle_seconds=5)
    line = app.connect()
    line.sendall(ASK)
    assert line.recv(65_536).startswith(b"HTTP/1.1 200")
    app.clock.let_pass(5)
    assert b"200" not in ended(line)


def test_a_head_has_a_length(serve):
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
    assert told == b"" or told.startswith(b"HTTP/1.1 431")
    assert app.ask().startswith(b"HTTP/1.1 200")


def test_a_request_with_two_ends_is_refused(serve):
    app = serve()
    for more in (b"Transfer-Encoding: chunked", b"Content-Length: 6"):
        head = b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        told = app.ask(head + more + b"\r\n\r\n0\r\n\r\n" + ASK)
        assert told.count(b"HTTP/1.1") == 1
        assert told.startswith(b"HTTP/1.1 400")


def test_what_is_forwarded_is_believed_of_proxies_alone(serve):
    request = ASK[:-2] + b"X-Forwarded-For: 203.0.113.1, 192.0.2.7, 127.0.0.2\r\n\r\n"
    for proxies, believed in (((), b"127.0.0.1"), (("127.0.0.0/30",), b"192.0.2.7")):
        assert serve(proxies=proxies).ask(request).endswith(b"\r\n\r\n" + believed)


def test_files_are_asked_for_and_a_warning_says_where_they_are_too_few():
    def ask():
        logging.getLogger().addHandler(logging.StreamHandler())
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 400))
        for files in (300, 1_000):
            _allow_files(files)
            sys.stdout.write(f"{resource.getrlimit(resource.RLIMIT_NOFILE)[0]}\n")

    done = in_a_child(ask)
    assert done.out.split() == ["300", "400"]
    assert "allows this process 400 open files" in done.err
