"""One connection of a client: how long it may keep quiet, and how slowly it may read.

uvicorn waits for ever for the head of a request, for a next request once a byte of it has come,
and for a client that does not read its answer. Here each of these has an end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from evergraph.core.extras import installed
from evergraph.server.gate import plain

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from evergraph.server.gate import Gate, Line

AHEAD = 16  # requests that a client may send before the first of them is answered
HEAD = 1 << 16  # bytes of a request's head
SLOWEST = 4_096  # bytes of an answer that a client must take in a second, where it could take more
HEALTH = ("/healthz", "/readyz")
REASONS = {431: "Request Header Fields Too Large", 503: "Service Unavailable"}
FULL = "all connections are taken: only the service's health is told"


def short_answer(status: int, sentence: str) -> bytes:
    """Return a whole answer to whoever is not asked for more.

    >>> short_answer(503, "later").splitlines()[0]
    b'HTTP/1.1 503 Service Unavailable'
    """
    body = json.dumps({"error": sentence})
    later = "retry-after: 1\r\n" if status == 503 else ""
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: application/json\r\n{later}"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


NOTHING_CAME = short_answer(503, "no request came in time, or others came first")


class Bounded(asyncio.Protocol):
    """What is added to a protocol of uvicorn's.

    Attributes:
        gate: where its place is.
        line: its place; None for what other processes of this service pass on.
    """

    gate: Gate
    line: Line | None = None
    # What uvicorn's protocols have.
    transport: asyncio.Transport
    client: tuple[str, int] | None
    app: Any
    cycle: Any
    _head = 0
    _paused = False
    _taking: tuple[float, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        if self.client is not None:
            self.client = (plain(self.client[0]), self.client[1])
        if self.line is not None:
            self.line.drop = self.drop
            if self.line.health:
                self.app = _OnlyHealth(self.app)
            if self.line.left:  # others came first, before this one had begun
                self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, and give the place back."""
        if self.line is not None:
            self.gate.leave(self.line)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; note when the head of a request begins and when it is whole."""
        line, before = self.line, self.cycle
        super().data_received(data)
        if line is None:
            return
        if self.cycle is not before:
            self._head = 0
            self.gate.asked(line)
        elif before is None or before.response_complete:
            self._wait_for_head(line, len(data))

    def _wait_for_head(self, line: Line, more: int) -> None:
        if self.transport.is_closing():
            return
        if line not in line.group.silent:
            self.gate.heard(line)
        if self._within_body():  # one that was answered before it was whole: it has as long
            return
        self._head += more
        if self._head > HEAD:
            said = f"the head of a request must have at most {HEAD} bytes"
            self.transport.write(short_answer(431, said))
            self.transport.close()

    def _within_body(self) -> bool:
        """Whether the request that was answered is still coming."""
        raise NotImplementedError

    def on_response_complete(self) -> None:
        """Note that a request was answered, unless the next one was begun."""
        super().on_response_complete()  # type: ignore[misc]
        if self.line is not None and self.cycle.response_complete:
            self.gate.answered(self.line)

    def drop(self) -> None:
        """End a connection that nobody answers; whoever has not asked yet is told why."""
        if self.transport.is_closing():
            return
        if self.cycle is None:
            self.transport.write(NOTHING_CAME)
        self.transport.close()

    def pause_writing(self) -> None:
        """Note that the client takes less than it is sent."""
        self._paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        self._paused, self._taking = False, None
        super().resume_writing()

    def look(self, now: float, seconds: float) -> None:
        """Give up on a client that hardly takes its answer; called from time to time."""
        if not (self._paused or self.transport.is_closing()):
            return
        left = self.transport.get_write_buffer_size() + _on_the_way(self.transport)
        since, before = self._taking or (now, left)
        if now - since < seconds:
            self._taking = (since, before)
        elif before - left < SLOWEST * seconds:
            self.transport.abort()
        else:
            self._taking = (now, left)


def _on_the_way(transport: asyncio.Transport) -> int:
    """Return how many bytes the system has sent or is to send, and the client has not taken yet.

    They may be megabytes, and only when many of them are gone does it take more: without them a
    slow client looks like one that takes nothing. 0 where the system does not say.
    """
    if not sys.platform.startswith("linux"):
        return 0
    import fcntl
    import termios

    told = bytearray(4)
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, told)
    except (OSError, AttributeError):  # it is closed
        return 0
    return int.from_bytes(told, sys.byteorder)


class _OnlyHealth:
    """An application that tells its health, and nothing else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        body = json.dumps({"error": FULL}).encode()
        headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
        headers += [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def protocol_class() -> type[Bounded]:
    """Return the protocol of a connection: by httptools where it is installed, or by h11."""
    return _with_httptools() if installed("httptools") else _with_h11()


def _with_httptools() -> type[Bounded]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection(Bounded, HttpToolsProtocol):
        _whole: Any = None
        _answered: Any = None  # the request that is; ``cycle`` is the last that was read

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            if not self.pipeline:
                self._answered = self.cycle
            elif len(self.pipeline) > AHEAD:  # the parser stops at once, and 400 is answered
                raise ValueError(f"more than {AHEAD} requests were sent ahead")

        def on_response_complete(self) -> None:
            self._answered = self.pipeline[-1][0] if self.pipeline else None
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self.pipeline.clear()  # nobody waits for these, nor for the rest of that one
            if self._answered is not None:
                self._answered.disconnected = True
            super().connection_lost(exc)

        def on_message_complete(self) -> None:
            self._whole = self.cycle
            super().on_message_complete()

        def _within_body(self) -> bool:
            return self._whole is not self.cycle

    return Connection


def _with_h11() -> type[Bounded]:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(Bounded, H11Protocol):
        def _within_body(self) -> bool:
            return self.conn.their_state is h11.SEND_BODY

    return Connection
