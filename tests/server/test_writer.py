"""One thread, few places, nothing half done."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import pytest

from evergraph.server.http import RefusedError
from evergraph.server.workers import Writer


def test_calls_run_in_turn_and_a_full_queue_refuses() -> None:
    writer, gate, begun, done = Writer(places=2), Event(), Event(), []

    def first() -> None:
        begun.set()
        gate.wait()
        done.append(0)

    running = writer.call(first)
    begun.wait()
    waiting = [writer.call(lambda n=n: done.append(n)) for n in (1, 2)]
    assert writer.waiting == 2
    with pytest.raises(RefusedError, match="2 changes are waiting already") as refused:
        writer.call(lambda: done.append(3))
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    gate.set()
    for future in (running, *waiting):
        future.result()
    assert done == [0, 1, 2]
    writer.close()


def test_what_nobody_waits_for_is_dropped_unless_it_has_begun() -> None:
    writer, gate, begun, done = Writer(places=2), Event(), Event(), []

    def first() -> None:
        begun.set()
        gate.wait()
        done.append("first")

    running = writer.call(first)
    begun.wait()
    waiting = writer.call(lambda: done.append("second"))
    assert (running.cancel(), waiting.cancel()) == (False, True)
    gate.set()
    writer.close()
    assert done == ["first"]


def test_close_finishes_what_waits_and_refuses_more() -> None:
    writer, done = Writer(places=50), []
    for number in range(40):
        writer.call(lambda n=number: done.append(n))
    writer.close()
    writer.close()
    assert done == list(range(40))
    with pytest.raises(RefusedError, match="stopping"):
        writer.call(lambda: None)


def test_an_error_reaches_who_waits_and_the_thread_goes_on() -> None:
    writer = Writer(places=2)
    with pytest.raises(ZeroDivisionError):
        writer.call(lambda: 1 // 0).result()
    assert writer.call(lambda: 5).result() == 5
    writer.close()


def test_calls_that_wait_one_behind_the_other_are_made_as_one() -> None:
    writer, gate, begun, done = Writer(places=20), Event(), Event(), []

    def first() -> None:
        begun.set()
        gate.wait()

    def together(items: Sequence[int]) -> list[int | Exception]:
        done.append(list(items))
        return [ValueError("odd") if item % 2 else 10 * item for item in items]

    running = writer.call(first)
    begun.wait()
    joined = [writer.join(together, item) for item in range(4)]
    alone = writer.call(lambda: done.append("alone"))
    later = [writer.join(together, item) for item in (4, 5)]
    other = writer.join(lambda items: [len(items)], 6)
    assert joined[2].cancel()
    gate.set()
    assert (running.result(), joined[0].result(), later[0].result()) == (None, 0, 40)
    for odd in (joined[1], joined[3], later[1]):
        with pytest.raises(ValueError, match="odd"):
            odd.result()
    alone.result()
    assert other.result() == 1
    writer.close()
    assert done == [[0, 1, 3], "alone", [4, 5]]


def test_joined_calls_before_the_end_are_made_and_an_error_reaches_all() -> None:
    writer, gate, begun = Writer(places=20), Event(), Event()

    def first() -> None:
        begun.set()
        gate.wait()

    def broken(items: Sequence[int]) -> list[int]:
        raise ZeroDivisionError(len(items))

    writer.call(first)
    begun.wait()
    joined = [writer.join(broken, item) for item in range(2)]
    gate.set()
    writer.close()
    for each in joined:
        with pytest.raises(ZeroDivisionError, match="2"):
            each.result()
