"""Kinds of work that are kept apart: what is slow of one holds up no other."""

from __future__ import annotations

import asyncio
from threading import Event, Thread
from typing import Any

import pytest

from evergraph.server.http import RefusedError
from evergraph.server.workers import Pool


def test_look_ups_that_take_long_hold_up_nobody(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, view = Event(), client.folder.learner.frozen()
    looked_up, suggest = view.looked_up, view.suggest
    monkeypatch.setattr(view, "looked_up", lambda *a, **k: (gate.wait(20), looked_up(*a, **k))[1])
    monkeypatch.setattr(view, "suggest", lambda *a, **k: (gate.wait(20), suggest(*a, **k))[1])
    paths = ["/v1/nodes/a"] * 45 + ["/v1/suggestions"] * 4
    told: list[int] = []
    threads = [Thread(target=lambda p=p: told.append(client.get(p).status_code)) for p in paths]
    for thread in threads:
        thread.start()
    try:
        body = {"ids": ["a"] * 100, "all": True}  # in a thread
        assert client.post("/v1/predictions", json=body).status_code == 200
        for path in ("/v1/status", "/v1/ids", "/v1/history", "/metrics", "/v1/keys?prefix=f"):
            assert client.get(path).status_code == 200
        change = client.post("/v1/labels", json={"labels": [["c", "x"]]})
        assert change.status_code == 200
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert told == [200] * len(paths)


def test_where_too_many_wait_the_next_is_refused() -> None:
    gate = Event()

    async def main() -> Any:
        pool = Pool("sums", threads=1, places=2, seconds=0.5)
        waiting = [asyncio.ensure_future(pool.run(lambda: gate.wait(5))) for _ in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedError, match="2 sums are waiting already") as refused:
            await pool.run(lambda: 2)
        late = await asyncio.gather(*waiting, return_exceptions=True)
        gate.set()
        for _ in range(500):  # the thread that went on is free again
            await asyncio.sleep(0.01)
            if not pool._running:
                break
        return refused.value, late, await pool.run(lambda: 2)

    refused, late, after = asyncio.run(main())
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert {str(error) for error in late} == {"the answer took longer than 0.5 s"}
    assert after == 2


def test_a_pool_that_is_closed_refuses() -> None:
    pool = Pool("sums", threads=1, places=2, seconds=0.5)
    pool.close()
    with pytest.raises(RefusedError, match="stopping"):
        asyncio.run(pool.run(lambda: 2))
