"""Bytes of request bodies, read within limits and held until their requests are answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request

from evergraph.server.http import ARROW, CALLER, JSON, RefusedError

if TYPE_CHECKING:
    from evergraph.server.limits import Limits

UNCOUNTED = 1 << 12  # bytes of a body that is not counted: as many as connections at most
MARKS, MARK_BYTES = b'[{,"', 80  # what begins or ends a value of JSON; bytes of it when parsed
PARSED = {JSON: 40, ARROW: 1}  # times its own size that a body takes once it is parsed, at most
ROOM_SECONDS, ROOM_PAUSE = 1.0, 0.25  # for which a body waits unread for room; between two looks


class Bodies:
    """Reads request bodies within limits, of each, of each caller, and of all together.

    ``held`` are the bytes of bodies whose requests are not answered yet, as sent and as parsed, by
    caller.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held: Counter[str] = Counter()

    def of(self, request: Request, kind: str = JSON) -> HeldBody:
        """Return an ``async with`` that reads a body, which counts as held until it ends."""
        return HeldBody(self, request, kind)

    def make_room(self, caller: str, more: int, own: int) -> None:
        """Reject ``more`` bytes for which there is no room; own: of the same body, held already."""
        most = self.limits.held
        for held, share, whose, status in (
            (self.held[caller], most // 2, "this caller's", 429),
            (self.held.total(), most, "all", 503),
        ):
            if held > own and held + more > share:
                sentence = f"{held} bytes of {whose} request bodies are held, and the limit is"
                raise RefusedError(
                    status, f"{sentence} {share}: send it again later", retry_after=1
                )


def _too_long(most: int, kind: str, found: str = "") -> RefusedError:
    if kind == JSON:
        rest = ": send it in parts, or as Arrow"
        return RefusedError(413, f"a JSON body must have at most {most} bytes{found}{rest}")
    return RefusedError(413, f"the body must have at most {most} bytes{found}")


class HeldBody:
    """The body of one request, read on entering within limits, and held until leaving."""

    def __init__(self, bodies: Bodies, request: Request, kind: str) -> None:
        self._bodies = bodies
        self._request = request
        self._kind = kind
        self._caller = CALLER.get()
        self._counted = 0
        self._late = False

    async def __aenter__(self) -> bytes:
        """Read the body."""
        limits, headers = self._bodies.limits, self._request.headers
        most = min(limits.json, limits.body) if self._kind == JSON else limits.body
        declared = headers.get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()):
            raise RefusedError(422, f"content-length must be a whole number, not {declared!r}")
        length = int(declared)
        if length > most:
            raise _too_long(most, self._kind, f", not {length}")
        counts = length > UNCOUNTED or "transfer-encoding" in headers
        # As ``asyncio.timeout``, which Python 3.10 lacks, at a tenth of the cost of anyio's.
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        clock = loop.call_later(limits.seconds, self._stop, task)
        try:
            if counts:
                await self._wait_for_room(length)
            return await self._read(most, counts)
        except BaseException as error:
            self._release()
            if self._late and isinstance(error, asyncio.CancelledError):
                sentence = f"the body took longer than {limits.seconds:g} s to arrive"
                raise RefusedError(503, sentence) from None
            raise
        finally:
            clock.cancel()

    async def _read(self, most: int, counts: bool) -> bytes:
        read, parts, more = 0, [], True
        while more:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, more = message.get("body", b""), message.get("more_body", False)
            read += len(part)
            if read > most:
                raise _too_long(most, self._kind)
            if counts:
                self._hold(read)
            parts.append(part)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if counts and self._kind == JSON:
            self._count(read + parsed_size(body))
        return body

    async def _wait_for_room(self, length: int) -> None:
        """Wait while others are held, so that a client who sends much need not send it again."""
        loop = asyncio.get_running_loop()
        late = loop.time() + ROOM_SECONDS
        while True:
            try:
                return self._hold(length)
            except RefusedError:
                if loop.time() >= late:
                    raise
            await asyncio.sleep(ROOM_PAUSE)

    def _hold(self, read: int) -> None:
        """Count what is read, or to be read, and what parsing it may take."""
        limit = self._bodies.limits.held
        if read > limit:
            rule = f"a body of {read} bytes is never held, and the limit is {limit}"
            raise RefusedError(503, f"{rule}: send it in parts", retry_after=1)
        whole = max(read, min((1 + PARSED[self._kind]) * read, limit // 2))
        if whole > self._counted:
            self._bodies.make_room(self._caller, whole - self._counted, self._counted)
            self._count(whole)

    def _count(self, whole: int) -> None:
        self._bodies.held[self._caller] += whole - self._counted
        self._counted = whole

    def _release(self) -> None:
        self._bodies.held[self._caller] -= self._counted
        if not self._bodies.held[self._caller]:
            del self._bodies.held[self._caller]

    def _stop(self, task: asyncio.Task[Any] | None) -> None:
        self._late = task is not None and task.cancel()

    async def __aexit__(self, *error: object) -> None:
        """Hold the body no longer."""
        self._release()


def parsed_size(body: bytes) -> int:
    """Return about how many bytes JSON takes once it is parsed, rather too many.

    >>> parsed_size(b'{"edges":[[0,1],[1,2]]}')
    743
    """
    # In one pass: to count each mark by itself would hold up the event loop for much longer.
    marks = len(body) - len(body.translate(None, MARKS))
    return len(body) + MARK_BYTES * marks
