"""Small bodies that would grow: what reading them allocates is bounded by what was sent.

The bodies are those that ``benchmarks/attacks.py`` sends.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from evergraph.core.errors import EvergraphError
from evergraph.server.arrow import delta_from_arrow
from evergraph.server.http import SMALL, Bodies, RefusedError
from evergraph.server.limits import Limits

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
KEPT: list[Any] = []  # a pool must live as long as what was allocated from it
MOST = 100_000_000  # bytes that reading a body of less than a megabyte may allocate


@pytest.fixture
def pool() -> Iterator[Any]:
    """Arrow's memory, counted from here on."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    KEPT.append((before, counted))
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


def bodies(name: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    prepared = importlib.import_module("benchmarks.attack_bodies").BODIES[name](100, 1_000)
    return [body for _, _, body in prepared.requests]


@pytest.mark.parametrize("name", ["dictionary bombs", "nested Arrow", "truncated Arrow"])
def test_a_small_body_stays_small(name: str, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in bodies(name, monkeypatch):
        held = pool.bytes_allocated()
        with pytest.raises(EvergraphError) as refused:
            delta_from_arrow(body)
        assert len(str(refused.value)) < 1_000  # it does not echo what it was sent
        grown = pool.max_memory() - held
        assert grown < MOST, f"{len(body):,} bytes took {grown:,}: {str(refused.value)[:100]}"


def test_the_bodies_of_all_requests_together_are_bounded(serve: Any) -> None:
    service = serve(held=100_000)
    kind = {"Content-Type": "application/json"}
    for path in ("/v1/deltas", "/v1/predictions", "/v1/labels", "/v1/compact"):
        for sent in (b" " * 200_000, (b" " * 60_000 for _ in range(3))):  # its length is not told
            answer = service.post(path, content=sent, headers=kind)
            assert answer.status_code == 503
            assert "at most 100000 may be" in answer.json()["error"]
            assert answer.headers["retry-after"] == "1"
        assert service.post(path, content=b" " * 99_000, headers=kind).status_code == 422


def test_room_comes_back_when_a_request_is_answered() -> None:
    async def scenario() -> None:
        bodies, gate = Bodies(Limits(held=1_000_000)), asyncio.Event()

        def request(size: int) -> Request:
            headers = [(b"content-length", b"%d" % size)]
            message = {"type": "http.request", "body": bytes(size), "more_body": False}

            async def receive() -> Any:
                return message

            return Request({"type": "http", "headers": headers}, receive)

        async def answer() -> None:
            async with bodies.of(request(700_000)) as body:
                assert len(body) == bodies.held == 700_000
                await gate.wait()

        first = asyncio.ensure_future(answer())
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedError, match="at most 1000000 may be"):
            async with bodies.of(request(400_000)):
                pass
        async with bodies.of(request(SMALL)):
            assert bodies.held == 700_000
        gate.set()
        await first
        assert bodies.held == 0

    asyncio.run(scenario())
