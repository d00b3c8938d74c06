"""The bodies of all requests together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evergraph.server.holding import SMALL, Holding
from evergraph.server.http import RefusedError


class Request:
    """A request whose body comes when the test says so."""

    def __init__(self, holding: Holding, length: int | None) -> None:
        headers = [(b"transfer-encoding", b"chunked")]
        if length is not None:
            headers = [(b"content-length", b"%d" % length)]
        self.scope = {"type": "http", "headers": headers}
        self.parts: asyncio.Queue[Any] = asyncio.Queue()
        self.done = asyncio.ensure_future(holding(self.scope, self.parts.get, None))  # type: ignore[arg-type]

    async def send(self, size: int, *, more: bool = True) -> None:
        self.parts.put_nowait({"type": "http.request", "body": bytes(size), "more_body": more})
        for _ in range(5):
            await asyncio.sleep(0)


async def read_all(_: Any, receive: Any, __: Any) -> None:
    while (await receive())["more_body"]:
        pass


def test_what_would_be_too_much_waits_and_room_comes_back() -> None:
    async def scenario() -> None:
        holding = Holding(read_all, most=1_000_000)
        first = Request(holding, 700_000)
        await first.send(400_000)
        assert holding.held == 400_000
        unread = Request(holding, 700_000)  # refused before it is read
        with pytest.raises(RefusedError, match="at most 1000000") as refused:
            await unread.done
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        chunked = Request(holding, None)
        await chunked.send(500_000)
        assert holding.held == 900_000
        await chunked.send(200_000)
        with pytest.raises(RefusedError):
            await chunked.done
        assert holding.held == 400_000
        small = Request(holding, SMALL)
        await small.send(SMALL, more=False)
        await small.done
        await first.send(300_000, more=False)
        await first.done
        assert holding.held == 0

    asyncio.run(scenario())


def test_it_is_in_front_of_every_route(serve: Any) -> None:
    service = serve(held=100_000)
    kind = {"Content-Type": "application/json"}
    for path in ("/v1/deltas", "/v1/predictions", "/v1/labels"):
        answer = service.post(path, content=b" " * 200_000, headers=kind)
        assert answer.status_code == 503
        assert "at most 100000 may be" in answer.json()["error"]
        assert answer.headers["retry-after"] == "1"
        assert service.post(path, content=b" " * 1_000, headers=kind).status_code == 422
