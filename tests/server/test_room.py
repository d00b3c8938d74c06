"""Room for the bodies of requests: so much for all, a share for each caller, and only for a time."""

import asyncio

import pytest
from starlette.requests import Request

from evergraph.server.http import CALLER, UNCOUNTED, Bodies, Limits, RefusedError


def test_the_bodies_of_all_requests_together_are_bounded(serve):
    service = serve(held=100_000)  # which a body alone may exceed, but not as it is sent
    kind = {"Content-Type": "application/json"}
    for path in ("/v1/deltas", "/v1/predictions", "/v1/labels", "/v1/compact"):
        for sent in (b" " * 200_000, (b" " * 60_000 for _ in range(3))):  # its length is not told
            answer = service.post(path, content=sent, headers=kind)
            assert answer.status_code == 413
            assert "at most 100000 bytes" in answer.json()["error"]
        assert service.post(path, content=b" " * 99_000, headers=kind).status_code == 422


def test_room_comes_back_when_a_request_is_answered(monkeypatch):
    monkeypatch.setattr("evergraph.server.http.ROOM_SECONDS", 0)

    async def scenario():
        bodies, gate = Bodies(Limits(held=2_600_000)), asyncio.Event()

        def request(size):
            headers = [(b"content-length", b"%d" % size)]
            message = {"type": "http.request", "body": bytes(size), "more_body": False}

            async def receive():
                return message

            return Request({"type": "http", "headers": headers}, receive)

        async def answer():
            async with bodies.received(request(700_000)) as body:
                assert len(body) == 700_000
                await gate.wait()

        async def held_by(caller):
            CALLER.set(caller)
            await answer()

        first = asyncio.ensure_future(answer())
        await asyncio.sleep(0.01)
        assert bodies.held == {"": 1_300_000}  # as sent and as parsed: the share of a caller
        with pytest.raises(RefusedError, match="the limit is 1300000") as refused:
            async with bodies.received(request(40_000)):
                pytest.fail("was read")
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
        second = asyncio.ensure_future(held_by("other"))
        await asyncio.sleep(0.01)
        CALLER.set("third")
        with pytest.raises(RefusedError, match="the limit is 2600000") as refused:
            async with bodies.received(request(40_000)):  # that may take 41 times as much
                pytest.fail("was read")
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        async with bodies.received(request(UNCOUNTED)):
            assert bodies.held == {"": 1_300_000, "other": 1_300_000}
        gate.set()
        await asyncio.gather(first, second)
        assert not bodies.held
        async with bodies.received(request(20_000)):
            assert bodies.held == {"third": 820_000}

    asyncio.run(scenario())


def test_a_body_that_does_not_arrive_is_given_up():
    async def scenario():
        async def receive():
            await asyncio.sleep(20)

        headers = [(b"content-length", b"20000")]
        bodies = Bodies(Limits(seconds=0.05))
        with pytest.raises(RefusedError, match="to arrive") as refused:
            async with bodies.received(Request({"type": "http", "headers": headers}, receive)):
                pytest.fail("was read")
        assert (refused.value.status, bodies.held) == (503, {})

    asyncio.run(scenario())
