"""Work that takes too long is stopped, and what would take as long with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from evergraph.experiments.bench import pool
from evergraph.experiments.bench.pool import TIME_LIMIT, Event, Limits, run_work
from evergraph.experiments.bench.worker import Ending, Work


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work in a folder "slow" never end, and all other be done at once, without processes."""

    def start(self: Any, work: Work) -> Event:
        self._watch, self.future = pool.Watch(work), Future()
        if work.folder.name != "slow":
            self.future.set_result(Ending(None, ()))
        return Event("started", work)

    monkeypatch.setattr(pool._Slot, "start", start)


def work(*names: str) -> Iterator[Work]:
    return (Work({}, seed, Path("nowhere", name)) for seed, name in enumerate(names))


def told(limits: Limits, *names: str) -> list[tuple[str, int]]:
    events: list[Event] = []
    run_work([*work(*names)], workers=1, on_event=events.append, limits=limits)
    for event in events:
        assert event.failure is None or event.failure.type == TIME_LIMIT
    return [(event.kind, event.work.seed) for event in events]


@pytest.mark.usefixtures("slow")
def test_work_that_is_late_takes_its_like_along_and_no_other() -> None:
    assert told(Limits(each=0.01), "slow", "quick", "slow") == [
        ("started", 0), ("failed", 0), ("failed", 2), ("started", 1), ("done", 1),
    ]  # fmt: skip


@pytest.mark.usefixtures("slow")
def test_what_is_left_when_time_is_up_neither_fails_nor_is_done() -> None:
    assert told(Limits(until=time.monotonic() + 0.1), "quick", "slow", "quick") == [
        ("started", 0), ("done", 0), ("started", 1),
    ]  # fmt: skip
    assert told(Limits(until=time.monotonic()), "quick") == []
