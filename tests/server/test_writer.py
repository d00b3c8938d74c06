"""One thread, few places, nothing half done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.http import RefusedError
from evergraph.server.workers import Writer
from stand_in import delta, opened


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LearnerFolder]:
    with opened(tmp_path) as made:
        yield made


def test_calls_run_in_turn_and_a_full_queue_refuses(folder: LearnerFolder) -> None:
    writer, gate, begun, done = Writer(folder, places=2), Event(), Event(), []

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


def test_what_nobody_waits_for_is_dropped_unless_it_has_begun(folder: LearnerFolder) -> None:
    writer, gate, begun, done = Writer(folder, places=2), Event(), Event(), []

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


def test_close_finishes_what_waits_and_refuses_more(folder: LearnerFolder) -> None:
    writer, done = Writer(folder, places=50), []
    for number in range(40):
        writer.call(lambda n=number: done.append(n))
    writer.close()
    writer.close()
    assert done == list(range(40))
    with pytest.raises(RefusedError, match="stopping"):
        writer.call(lambda: None)


def test_an_error_reaches_who_waits_and_the_thread_goes_on(folder: LearnerFolder) -> None:
    writer = Writer(folder, places=2)
    with pytest.raises(ZeroDivisionError):
        writer.call(lambda: 1 // 0).result()
    assert writer.call(lambda: 5).result() == 5
    writer.close()


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
