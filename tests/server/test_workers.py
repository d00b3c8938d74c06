"""Who works: one thread that writes, some for each kind of work, and the loop for few questions."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson
import pytest

from evergraph.core.errors import UnknownNodeError
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.view import NODES_PER_PART, Answer, PublishedState
from evergraph.server.app import after_in
from evergraph.server.http import CALLER, RefusedError
from evergraph.server.schema import to_json
from evergraph.server.service import NODES_AT_ONCE, PredictionBatches
from evergraph.server.workers import Pool, Writer
from stand_in import delta, opened


def test_look_ups_that_take_long_hold_up_nobody(client, monkeypatch):
    gate, view = Event(), client.folder.learner.frozen()
    reading = view.reading
    monkeypatch.setattr(view, "reading", lambda *a: (gate.wait(20), reading(*a))[1])
    paths = ["/v1/nodes/a"] * 45 + ["/v1/suggestions"] * 4
    told = []
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


def test_where_too_many_wait_the_next_is_refused():
    gate = Event()

    async def main():
        pool = Pool("sums", queue_size=2, seconds=0.1)
        callers = ["one", "one", "other"]
        waiting = [asyncio.ensure_future(run(pool, partial(gate.wait, 60), who)) for who in callers]
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedError, match="2 sums are waiting already") as refused:
            await run(pool, lambda: 2, "third")
        late = await asyncio.gather(*waiting, return_exceptions=True)
        gate.set()
        pool.seconds = 20
        after = await pool.run(lambda: 2)  # once the thread that went on is free again
        pool.close()
        with pytest.raises(RefusedError, match="stopping"):
            await pool.run(lambda: 2)
        return refused.value, late, after

    refused, late, after = asyncio.run(main())
    assert refused.status == 503
    # What the client has sent ahead would be refused as well: the connection is closed.
    assert refused.headers == {"Retry-After": "1", "Connection": "close"}
    assert {str(error) for error in late} == {"the answer took longer than 0.1 s"}
    assert after == 2


async def run(pool, work, caller):
    CALLER.set(caller)
    return await pool.run(work)


def test_callers_take_turns_and_one_with_much_leaves_a_thread_to_the_others():
    done, gate = [], Event()

    def work(name):
        if name.startswith("large"):
            gate.wait(60)
        done.append(name)
        return name

    async def main():
        pool = Pool("sums", queue_size=8, seconds=20, threads=2)
        asked = [("one", f"large {n}") for n in range(3)] + [("two", "a"), ("two", "b")]
        waiting = [
            asyncio.ensure_future(run(pool, partial(work, name), who)) for who, name in asked
        ]
        await asyncio.gather(*waiting[3:])
        early = [*done]
        gate.set()
        told = await asyncio.gather(*waiting)
        pool.close()
        return early, told

    early, told = asyncio.run(main())
    assert early == ["a", "b"]  # though all of the other caller came first
    assert told == ["large 0", "large 1", "large 2", "a", "b"]
    assert done == [*early, *told[:3]]


def test_no_caller_takes_more_than_half_of_the_places():
    gate = Event()

    async def main():
        pool = Pool("sums", queue_size=4, seconds=20)
        waiting = [
            asyncio.ensure_future(run(pool, partial(gate.wait, 60), "one")) for _ in range(3)
        ]
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedError, match="2 sums of this caller are waiting") as refused:
            await run(pool, lambda: 2, "one")
        other = asyncio.ensure_future(run(pool, lambda: 2, "other"))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*waiting)
        return refused.value, await other

    refused, other = asyncio.run(main())
    assert (refused.status, refused.headers["Retry-After"], other) == (429, "1", 2)


def test_who_gave_up_has_no_further_turn_until_its_call_has_ended():
    gate, begun = Event(), Event()

    def begin():
        begun.set()
        return gate.wait(60)

    async def main():
        pool = Pool("sums", queue_size=8, seconds=0.1, threads=2)
        with pytest.raises(RefusedError, match="longer than 0"):
            await pool.run(partial(gate.wait, 60))
        with pytest.raises(RefusedError, match="longer than 0"):
            await pool.run(begun.set)
        assert not begun.is_set()  # and it never begins: nobody waits for it
        gate.set()
        pool.seconds = 20
        assert await pool.run(lambda: begun.is_set()) is False
        gate.clear()
        waiting = [asyncio.ensure_future(pool.run(begin)) for _ in range(3)]
        while not begun.is_set():
            await asyncio.sleep(0.001)
        pool.close()
        gate.set()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(each) for each in told] == ["True", *["the service is stopping"] * 2]

    asyncio.run(main())


def test_all_slices_of_an_answer_are_of_one_state(client, monkeypatch):
    ids, answer = ["a", "c"] * NODES_PER_PART, PublishedState.answer
    expected = client.folder.learner.frozen().answer(["a", "c"], every_class=True)

    def then_learn(page, *asked, **options):
        found = answer(page, *asked, **options)
        if not learned:
            learned.append(client.folder.submit(Delta(late=(("a", "y"), ("c", "x")))))
        return found

    learned = []
    monkeypatch.setattr(PublishedState, "answer", then_learn)
    told = client.post("/v1/predictions", json={"ids": ids, "all": True}).json()
    assert learned
    assert told["seq"] == expected.seq < learned[0].seq
    shares = [one.probabilities for one in expected.predictions] * NODES_PER_PART
    assert [one["probabilities"] for one in told["predictions"]] == shares


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LearnerFolder]:
    with opened(tmp_path) as made:
        yield made


def sent_by(number, send):
    context = copy_context()
    context.run(CALLER.set, f"caller {number}")
    return context.run(send)


def called(writer: Writer, function: Any) -> Any:
    return writer.submit(Delta(), function)


def test_calls_run_in_turn_and_a_full_queue_refuses(folder):
    writer, gate, begun, done = Writer(folder, queue_size=3), Event(), Event(), []

    def first():
        begun.set()
        gate.wait()
        done.append(0)

    running = called(writer, first)
    begun.wait()
    waiting = [sent_by(n, lambda n=n: called(writer, lambda: done.append(n))) for n in (1, 2, 3)]
    assert writer.waiting == 3
    with pytest.raises(RefusedError, match="3 changes are waiting already") as refused:
        called(writer, lambda: done.append(4))
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    # What nobody waits for is dropped, unless it has begun.
    assert (running.cancel(), waiting.pop().cancel()) == (False, True)
    gate.set()
    for future in (running, *waiting):
        future.result()
    assert done == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):  # which reaches who waits, and the thread goes on
        called(writer, lambda: 1 // 0).result()
    for number in (5, 6):
        sent_by(number, lambda n=number: called(writer, lambda: done.append(n)))
    writer.close()
    writer.close()
    assert done == [0, 1, 2, 5, 6]  # what waited is finished
    with pytest.raises(RefusedError, match="stopping"):
        called(writer, lambda: None)


def test_a_change_that_is_done_takes_no_place_in_the_queue(folder, monkeypatch):
    writer, offer, seen = Writer(folder, queue_size=1), folder.waiting.offer, []

    def watched(*given):
        future = offer(*given)
        future.add_done_callback(lambda _: seen.append(writer.waiting))  # before the writer's own
        return future

    monkeypatch.setattr(folder.waiting, "offer", watched)
    called(writer, lambda: None)
    writer.close()
    assert seen == [0]


def test_deltas_that_wait_are_taken_in_together_between_calls(folder):
    writer, gate, begun, sizes = Writer(folder, queue_size=5), Event(), Event(), []
    take = folder.waiting._take

    def counted(waiting):
        sizes.append(len(waiting))
        take(waiting)

    folder.waiting._take = counted

    def first():
        begun.set()
        gate.wait()

    running = called(writer, first)
    begun.wait()
    told = [sent_by(n // 3, lambda n=n: writer.submit(delta(n))) for n in (1, 2, 3, 4)]
    with pytest.raises(RefusedError, match="2 changes of this caller are waiting") as refused:
        sent_by(0, lambda: writer.submit(delta(5)))
    assert refused.value.status == 429
    alone = sent_by(2, lambda: called(writer, lambda: folder.seq))
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


def asked_at_once(
    questions: Sequence[Sequence[Any]], calls: list[int], gone: int | None = None
) -> Any:
    def answer(ids: Sequence[Any], every_class: bool) -> Answer:
        calls.append(len(ids))
        if "nobody" in ids:
            raise UnknownNodeError("node 'nobody' is not in the graph")
        return Answer(7, tuple(ids))

    async def main() -> Any:
        batches = PredictionBatches(answer)
        waiting = [batches.ask(ids, False) for ids in questions]
        if gone is not None:
            waiting.pop(gone).cancel()
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def test_what_waits_is_answered_in_one_call_and_each_gets_its_part():
    calls = []
    told = asked_at_once([["a"], [], ["b", "c"]], calls)
    assert [one.predictions for one in told] == [("a",), (), ("b", "c")]
    assert calls == [3]
    told = asked_at_once([["a"], ["nobody"], ["b"]], [])  # what is wrong spoils no other
    assert (told[0].predictions, told[2].predictions) == (("a",), ("b",))
    assert isinstance(told[1], UnknownNodeError)
    calls.clear()
    asked_at_once([["a"] * 6] * 3 + [["b"] * NODES_AT_ONCE], calls)
    assert calls == [12, 6, NODES_AT_ONCE]  # a call is of bounded size
    calls.clear()
    (told,) = asked_at_once([["a"], ["b"]], calls, gone=0)  # who asked and went is passed over
    assert (told.predictions, calls) == (("b",), [1])


@pytest.mark.parametrize("count", [1, NODES_AT_ONCE, NODES_AT_ONCE + 1, NODES_PER_PART + 1, 300])
def test_few_and_many_are_told_the_same(lasting, count):
    ids = (["a", "c", 1, 3] * count)[:count]
    told = lasting.post("/v1/predictions", json={"ids": ids, "all": True}).json()
    alone = [
        lasting.post("/v1/predictions", json={"ids": [node], "all": True}).json()
        for node in ids[:4]
    ]
    for one, other in zip(told["predictions"], alone, strict=False):
        (expected,) = other["predictions"]
        assert one == expected  # to the last digit
        assert one["probability"] == max(one["probabilities"])
    answer = lasting.post("/v1/predictions", json={"ids": [*ids, "nobody"]})
    assert answer.status_code == 404
    assert answer.json() == {"error": "node 'nobody' is not in the graph"}


@pytest.mark.parametrize("every", [False, True])
def test_many_are_written_in_blocks_as_they_are_at_once(lasting, every):
    view = lasting.folder.learner.frozen()
    for count in (0, 1, NODES_PER_PART, 5 * NODES_PER_PART + 1):
        ids = (["a", "c", 1, 3] * count)[:count]
        answer = view.answer(ids[:NODES_PER_PART], every_class=every)
        answer = replace(answer, predictions=(answer.predictions * count)[:count])
        told = lasting.post("/v1/predictions", json={"ids": ids, "all": every})
        assert told.content == orjson.dumps(to_json(answer))


def test_one_node_by_its_address(lasting):
    for node, text in (("a", "a"), (3, "3")):
        told = lasting.get(f"/v1/predictions/{text}").json()
        assert told == lasting.post("/v1/predictions", json={"ids": [node]}).json()
    told = lasting.get("/v1/predictions/3?integer=true&all=true").json()
    assert told == lasting.post("/v1/predictions", json={"ids": [3], "all": True}).json()
    assert lasting.get("/v1/predictions/nobody").status_code == 404
    assert lasting.get("/v1/predictions/nobody?integer=true").status_code == 422


@pytest.mark.parametrize("text", [b"after=", b"after=-1", b"after=1.5", b"after=9" + b"9" * 19])
def test_what_is_no_seq_is_refused(text):
    with pytest.raises(RefusedError, match="after must be the seq of a delta"):
        after_in(text)


def test_an_answer_of_too_many_numbers_is_refused(serve, first):
    client = serve(answers=100)
    client.post("/v1/deltas", json=first)
    few = {"ids": ["a"] * 50, "all": True}
    assert client.post("/v1/predictions", json=few).status_code == 200
    more = client.post("/v1/predictions", json={"ids": ["a"] * 51, "all": True})
    assert (more.status_code, more.json()["error"]) == (
        413,
        "an answer must hold at most 100 probabilities, not 51 of 2 classes: request at most 50 "
        "nodes at a time",
    )
    assert client.post("/v1/predictions", json={"ids": ["a"] * 51}).status_code == 200


def test_a_status_names_some_classes(client, monkeypatch):
    assert client.get("/v1/status").json()["names"] == ["x", "y"]
    monkeypatch.setattr("evergraph.server.schema.MAX_NAMES", 1)
    told = client.get("/v1/status").json()
    assert (told["names"], told["classes"]) == (["y"], 2)
    pages = [client.get(f"/v1/classes?start={start}&limit=1").json() for start in range(3)]
    assert [page["classes"] for page in pages] == [["x"], ["y"], []]
    assert [page["next"] for page in pages] == [1, None, None]
