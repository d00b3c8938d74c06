"""Who asks much at once waits for himself, not others for him."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evergraph.server.gate import group_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

# Answered at once: they take microseconds, or nothing but waiting.
AT_ONCE = frozenset({"/healthz", "/readyz", "/v1/predictions", "/v1/journal"})
# What may take long, so that one kind does not wait for another; everything else is one more.
KINDS = frozenset(
    ("deltas", "upsert", "labels", "forget", "compact", "nodes", "predictions", "suggestions")
)


@dataclass
class _Address:
    """Requests of one address and kind: how many are being answered, and those that wait."""

    busy: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Turns:
    """An application that answers so many requests of a kind from one address, in their order.

    A loop goes around all requests that are being answered. Where one address has hundreds of
    them, each of another's waits for hundreds, at every step it takes.

    Args:
        app: what answers.
        most: requests of one kind from one address at a time.

    >>> began = []
    >>> async def app(scope, receive, send):
    ...     began.append(scope["client"][0])
    ...     await asyncio.sleep(0.001)
    >>> async def main():
    ...     turns = Turns(app, most=1)
    ...     asked = [{"type": "http", "path": "/", "client": (who, 1)} for who in "aab"]
    ...     await asyncio.gather(*(turns(scope, None, None) for scope in asked))
    >>> asyncio.run(main())
    >>> began
    ['a', 'b', 'a']
    """

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self.app = app
        self.most = most
        self._addresses: dict[tuple[str, str], _Address] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request when its turn has come."""
        client = scope.get("client")
        # A replica on this machine comes through a socket file, and has had turns taken already.
        if scope["type"] != "http" or client is None or scope["path"] in AT_ONCE:
            await self.app(scope, receive, send)
            return
        name = group_of(client[0]), kind_of(scope["path"])
        address = self._addresses.setdefault(name, _Address())
        await self._turn(address)
        try:
            await self.app(scope, receive, send)
        finally:
            self._next(name, address)

    async def _turn(self, address: _Address) -> None:
        if address.busy < self.most:
            address.busy += 1
            return
        turn = asyncio.get_running_loop().create_future()
        address.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had just come: the next one has it
                self._hand_on(address)
            else:
                address.waiting.remove(turn)
            raise

    def _next(self, name: tuple[str, str], address: _Address) -> None:
        self._hand_on(address)
        if not address.busy:
            self._addresses.pop(name, None)

    def _hand_on(self, address: _Address) -> None:
        """Have the first that waits begin; who is busy stays as many then."""
        while address.waiting:
            turn = address.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        address.busy -= 1


def kind_of(path: str) -> str:
    """Return what kind of request a path stands for.

    >>> kind_of("/v1/nodes/paper-7"), kind_of("/v1/status"), kind_of("/anything")
    ('nodes', 'other', 'other')
    """
    kind = path.removeprefix("/v1/").partition("/")[0]
    return kind if kind in KINDS else "other"
