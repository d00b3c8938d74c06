"""Requests of one address are answered a few at a time, and nobody else waits for them."""

from __future__ import annotations

import asyncio
from threading import Event, Thread
from typing import Any

import pytest

from evergraph.server.pools import Pool
from evergraph.server.turns import Turns
from waiting import until


class Counting:
    """An application whose answers take a while."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.order: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        who = scope["client"][0] if scope["client"] else "?"
        self.now[who] = self.now.get(who, 0) + 1
        self.most[who] = max(self.most.get(who, 0), self.now[who])
        self.order.append(f"{who}{scope['path']}")
        try:
            await asyncio.sleep(0.001)
        finally:
            self.now[who] -= 1


def asked(who: str | None, path: str = "/v1/ids") -> dict[str, Any]:
    return {"type": "http", "path": path, "client": None if who is None else (who, 1)}


def test_an_address_has_a_few_at_a_time_and_others_pass_it() -> None:
    app = Counting()
    turns = Turns(app, most=3)

    async def main() -> None:
        many = [asked("192.0.2.1") for _ in range(30)]
        other = [asked("192.0.2.2")]
        await asyncio.gather(*(turns(scope, None, None) for scope in many + other))  # type: ignore[arg-type]

    asyncio.run(main())
    assert app.most == {"192.0.2.1": 3, "192.0.2.2": 1}
    assert app.order.index("192.0.2.2/v1/ids") == 3  # behind those that had begun
    assert turns._addresses == {}


def test_health_predictions_and_the_own_replicas_take_no_turn() -> None:
    app = Counting()
    turns = Turns(app, most=1)

    async def main() -> None:
        scopes = [asked("h", path) for path in ("/healthz", "/readyz", "/v1/predictions") * 2]
        scopes += [asked(None), asked(None)]
        await asyncio.gather(*(turns(scope, None, None) for scope in scopes))  # type: ignore[arg-type]

    asyncio.run(main())
    assert app.most == {"h": 6, "?": 2}


def test_who_gives_up_waiting_costs_nobody_a_turn() -> None:
    app = Counting()
    turns = Turns(app, most=1)

    async def main() -> None:
        tasks = [asyncio.create_task(turns(asked("a"), None, None)) for _ in range(4)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(turns(asked("a"), None, None), 1)  # type: ignore[arg-type]

    asyncio.run(main())
    assert len(app.order) == 3
    assert turns._addresses == {}


def test_what_fails_gives_its_turn_back() -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError

    turns = Turns(fail, most=1)

    async def main() -> list[Any]:
        both = (turns(asked("a"), None, None) for _ in range(2))  # type: ignore[arg-type]
        return await asyncio.wait_for(asyncio.gather(*both, return_exceptions=True), 1)

    assert [type(error) for error in asyncio.run(main())] == [ValueError, ValueError]


def test_the_service_has_turns(serve: Any, first: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(at_once=1)
    client.post("/v1/deltas", json=first)
    gate, begun = Event(), []
    run = Pool.run

    async def waiting(pool: Pool, call: Any) -> Any:
        begun.append(pool.what)
        return await run(pool, lambda: (gate.wait(10), call())[1])

    monkeypatch.setattr(Pool, "run", waiting)
    threads = [Thread(target=client.get, args=("/v1/ids",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(begun) == 1)
    assert client.post("/v1/predictions", json={"ids": ["a"]}).status_code == 200
    assert len(begun) == 1  # the others wait for that one
    gate.set()
    for thread in threads:
        thread.join()
    assert len(begun) == 3
