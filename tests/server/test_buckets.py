"""Token buckets, by hand."""

from __future__ import annotations

from evergraph.server import auth as module
from evergraph.server.auth import Buckets


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(rate=2.0, burst=3, clock=clock)
    assert [buckets.take("me") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("you") == 0.0
    clock.now += 0.25
    assert buckets.take("me") == 0.25
    clock.now += 0.25
    assert [buckets.take("me"), buckets.take("me")] == [0.0, 0.5]
    clock.now += 1000  # a bucket holds no more than a burst
    assert [buckets.take("me") > 0 for _ in range(4)] == [False, False, False, True]


def test_callers_that_went_are_forgotten_and_those_that_hurry_are_not(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    clock = Clock()
    buckets = Buckets(rate=1.0, burst=2, clock=clock)
    for caller in "abc":
        buckets.take(caller)
    clock.now += 1
    buckets.take("c"), buckets.take("c")
    clock.now += 1.5  # a and b are full again
    buckets.take("d")
    assert set(buckets._left) == {"c", "d"}
    for caller in "efghij":
        buckets.take(caller)
    assert len(buckets._left) <= 3
