"""Passing requests on to the process that writes, and its answers back, as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
from starlette.requests import ClientDisconnect, Request

from evergraph.core.errors import EvergraphError
from evergraph.server.guard import CALLER
from evergraph.server.headers import HEADERS
from evergraph.server.http import RefusedError, body_parts, declared_length, failure, read_body
from evergraph.server.request_ids import HEADER, REQUEST_ID
from evergraph.server.tls import believing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from evergraph.server.guard import Guard
    from evergraph.server.limits import Limits
    from evergraph.server.tokens import Scope as Right

Routes = Mapping[tuple[str, str], "Right"]
WRITES: Routes = {
    ("POST", f"/v1/{name}"): "write" for name in ("deltas", "upsert", "labels", "forget")
}
# What only the writer knows: keys, what waits, how its folder and the other processes do.
WRITERS: Routes = {
    ("GET", "/v1/keys"): "read",
    ("GET", "/v1/status"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/v1/journal"): "follow",
    ("GET", "/v1/snapshot"): "follow",
    ("POST", "/v1/compact"): "write",
}
# These are between two neighbours, or are written anew here.
OWN = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"expect", b"date"}
OWN |= {b"server", b"trailer", b"proxy-authorization", b"proxy-authenticate", CALLER.encode()}
OWN |= {name for name, _ in HEADERS} | {HEADER}
PIECE = 1 << 16
Parts = AsyncIterator[bytes]


@dataclass(frozen=True)
class Target:
    """Where requests are passed on to: a socket file on this machine, or a URL.

    Attributes:
        address: the file or the URL.
        ca: PEM file of the authority that signed its certificate, in place of the system's.

    >>> Target("http://leader:8000").host, Target("/run/writer.sock").host
    ('leader:8000', None)
    """

    address: str
    ca: Path | None = None

    @property
    def host(self) -> str | None:
        """What a service somewhere else is called; None on this machine."""
        return urlsplit(self.address).netloc.rsplit("@", 1)[-1] or None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        if self.host is None:
            return await asyncio.open_unix_connection(self.address)
        url = urlsplit(self.address)
        tls = believing(self.ca) if url.scheme == "https" else None
        port = url.port or (443 if tls else 80)
        return await asyncio.open_connection(url.hostname, port, ssl=tls)


class Passing:
    """An application that passes some requests on, once they are let in, and answers the others.

    Whoever they are passed to looks at their tokens again: a replica gives nobody more rights.

    Args:
        app: answers the others.
        target: who is asked.
        routes: method and path to the right that is needed.
        guard: who is let in.
        limits: how large a body may be, and how long an answer may take.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        target: Target,
        routes: Routes,
        guard: Guard,
        limits: Limits,
    ) -> None:
        self.app = app
        self._target = target
        self._routes = {key: (right, _Route(key[1])) for key, right in routes.items()}
        self._guard = guard
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer."""
        found = scope["type"] == "http" and self._routes.get((scope["method"], scope["path"]))
        if not found:
            await self.app(scope, receive, send)
            return
        right, scope["route"] = found
        request = Request(scope, receive)
        try:
            self._guard.admit(request, right)
            await self._pass(request, send)
        except (EvergraphError, ClientDisconnect) as error:
            await failure(error, scope)(scope, receive, send)

    async def _pass(self, request: Request, send: Send) -> None:
        length, parts = await _with_length(request, self._limits)
        head = _head(request, self._target, length)
        async with AsyncExitStack() as line:
            # Longer than the writer itself waits: what it says of a late change is worth more.
            with _answering(2 * self._limits.seconds + 5):
                reader, writer = await self._target.connect()
                line.callback(writer.close)
                sending = asyncio.ensure_future(_send(writer, head, parts))
                line.callback(sending.cancel)
                start = await _start(reader, sending)
            await send(start)
            while part := await reader.read(PIECE):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


@contextmanager
def _answering(seconds: float) -> Iterator[None]:
    """Say in one sentence that nobody answers."""
    try:
        with anyio.fail_after(seconds):
            yield
    except (OSError, ValueError, EOFError, TimeoutError) as error:
        said = str(error) or type(error).__name__
        raise RefusedError(
            503, f"the process that writes does not answer ({said})", retry_after=1
        ) from None


@dataclass(frozen=True)
class _Route:
    """What metrics count a request under."""

    path: str


async def _with_length(request: Request, limits: Limits) -> tuple[int, Parts]:
    """Return how long a body is, and its parts as they come; without a length it is read first."""
    if "content-length" in request.headers or "transfer-encoding" not in request.headers:
        return declared_length(request, limits), body_parts(request, limits)
    body = await read_body(request, limits)

    async def whole() -> Parts:
        yield body

    return len(body), whole()


def _head(request: Request, target: Target, length: int) -> bytes:
    """Return the request's first lines; as HTTP/1.0, so the answer ends where the line does."""
    scope = request.scope
    path = scope.get("raw_path") or scope["path"].encode()
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    left_out = OWN | {b"content-length"} | (set() if target.host is None else {b"host"})
    kept = [(name, value) for name, value in scope["headers"] if name not in left_out]
    caller = request.client.host if request.client is not None else "?"
    kept.append((CALLER.encode(), caller.encode()))
    kept.append((HEADER, REQUEST_ID.get().encode()))  # one id for both processes
    kept.append((b"content-length", b"%d" % length))
    if target.host is not None:
        path = urlsplit(target.address).path.rstrip("/").encode() + path
        kept.append((b"host", target.host.encode()))
    lines = [b"%s %s%s HTTP/1.0" % (scope["method"].encode(), path.split(b"?")[0], query)]
    return b"\r\n".join([*lines, *(b"%s: %s" % pair for pair in kept), b"", b""])


async def _send(writer: asyncio.StreamWriter, head: bytes, parts: Parts) -> None:
    """Send a request."""
    with suppress(OSError):  # where the other side hangs up, its answer says why
        writer.write(head)
        try:
            async for part in parts:
                writer.write(part)
                await writer.drain()
        except (EvergraphError, ClientDisconnect):
            writer.transport.abort()  # what is not whole must not be taken for it
            raise


async def _start(reader: asyncio.StreamReader, sending: asyncio.Future[None]) -> dict[str, Any]:
    """Return the beginning of an answer as ASGI has it; raise what is wrong with the request."""
    try:
        read = await reader.readuntil(b"\r\n\r\n")
    except (OSError, EOFError):
        if sending.done():
            sending.result()
        raise
    first, *lines = read.rstrip().split(b"\r\n")
    pairs = [line.split(b":", 1) for line in lines]
    headers = [(name.strip().lower(), value.strip()) for name, value in pairs]
    kept = [(name, value) for name, value in headers if name not in OWN]
    return {"type": "http.response.start", "status": int(first.split()[1]), "headers": kept}
