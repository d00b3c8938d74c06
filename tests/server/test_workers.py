"""Who works: one thread that writes, some for each kind of work, and the loop for few questions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.http import RefusedError
from evergraph.server.workers import Pool, Writer
from stand_in import delta, opened


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
        after = await pool.run(lambda: 2)
        pool.close()
        with pytest.raises(RefusedError, match="stopping"):
            await pool.run(lambda: 2)
        return refused.value, late, after

    refused, late, after = asyncio.run(main())
    assert refused.status == 503
    # What the client has sent ahead would be refused as well: the connection is closed.
    assert refused.headers == {"Retry-After": "1", "Connection": "close"}
    assert {str(error) for error in late} == {"the answer took longer than 0.5 s"}
    assert after == 2


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LearnerFolder]:
    with opened(tmp_path) as made:
        yield made


def test_calls_run_in_turn_and_a_full_queue_refuses(folder: LearnerFolder) -> None:
    writer, gate, begun, done = Writer(folder, places=3), Event(), Event(), []

    def first() -> None:
        begun.set()
        gate.wait()
        done.append(0)

    running = writer.call(first)
    begun.wait()
    waiting = [writer.call(lambda n=n: done.append(n)) for n in (1, 2, 3)]
    assert writer.waiting == 3
    with pytest.raises(RefusedError, match="3 changes are waiting already") as refused:
        writer.call(lambda: done.append(4))
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    # What nobody waits for is dropped, unless it has begun.
    assert (running.cancel(), waiting.pop().cancel()) == (False, True)
    gate.set()
    for future in (running, *waiting):
        future.result()
    assert done == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):  # which reaches who waits, and the thread goes on
        writer.call(lambda: 1 // 0).result()
    for number in (5, 6):
        writer.call(lambda n=number: done.append(n))
    writer.close()
    writer.close()
    assert done == [0, 1, 2, 5, 6]  # what waited is finished
    with pytest.raises(RefusedError, match="stopping"):
        writer.call(lambda: None)


def test_deltas_that_wait_are_taken_in_together_between_calls(folder: LearnerFolder) -> None:
    writer, gate, begun, sizes = Writer(folder, places=5), Event(), Event(), []
    take = folder.waiting._take

    def counted(waiting: Any) -> None:
        sizes.append(len(waiting))
        take(waiting)

    folder.waiting._take = counted

    def first() -> None:
        begun.set()
        gate.wait()

    running = writer.call(first)
    begun.wait()
    told = [writer.submit(delta(number)) for number in (1, 2, 3, 4)]
    alone = writer.call(lambda: folder.seq)
    time.sleep(0.02)  # the clock may not have moved since
    assert (writer.waiting, writer.oldest > 0.0) == (5, True)
    with pytest.raises(RefusedError, match="5 changes are waiting already"):
        writer.submit(delta(5))
    assert told[1].cancel()
    gate.set()
    running.result()
    assert [told[place].result().seq for place in (0, 2, 3)] == [1, 2, 3]
    assert alone.result() == 3
    writer.submit(delta(6))
    writer.close()  # what waits is finished
    assert (sizes, folder.seq) == ([3, 1], 4)
    assert (writer.waiting, writer.oldest) == (0, 0.0)
    assert writer.busy > 0.0
    with pytest.raises(RefusedError, match="stopping"):
        writer.submit(delta(7))
