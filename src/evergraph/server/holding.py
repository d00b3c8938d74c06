"""A bound on the bodies of all requests together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALL = 1 << 16  # bytes: what connections read ahead in any case


class Holding:
    """An application that has others wait with their bodies where too much is held already.

    What a request has sent counts until it is answered. A body that could not be held is refused
    before it is read, where its length is known. Small ones are not counted: there are never more
    of them than connections.

    Args:
        app: answers.
        most: bytes held at once.

    Attributes:
        held: bytes held now.
    """

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self.app = app
        self.most = most
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        length = _length(scope) if scope["type"] == "http" else 0
        if length is not None and length <= SMALL:
            await self.app(scope, receive, send)
            return
        body = _Body(self, receive, length or 0)
        try:
            await self.app(scope, body.receive, send)
        finally:
            self.held -= body.size


class _Body:
    """The body of one request, counted as it comes."""

    def __init__(self, holding: Holding, receive: Receive, length: int) -> None:
        self.size = 0
        self._holding = holding
        self._receive = receive
        self._length = length

    async def receive(self) -> Message:
        """Return the next part; refuse where there is no room for it, or for the whole."""
        self._check(self._length - self.size)
        message = await self._receive()
        more = len(message.get("body", b""))
        self._check(more)
        self.size += more
        self._holding.held += more
        return message

    def _check(self, more: int) -> None:
        holding = self._holding
        if more > 0 and holding.held + more > holding.most:
            raise RefusedError(
                503,
                f"bodies of {holding.held} bytes are held already, and at most {holding.most} may "
                "be: send it again later",
                retry_after=1,
            )


def _length(scope: Scope) -> int | None:
    """Return how long a body is said to be; None where nobody knows.

    >>> _length({"headers": [(b"content-length", b"12")]}), _length({"headers": []})
    (12, 0)
    >>> _length({"headers": [(b"transfer-encoding", b"chunked")]})
    """
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else None
        if name == b"transfer-encoding":
            return None
    return 0
