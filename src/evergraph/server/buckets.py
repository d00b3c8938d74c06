"""How often somebody may come."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST = 10_000  # callers remembered at once


class Buckets:
    """A token bucket per caller: ``burst`` tokens at most, ``rate`` more every second.

    Args:
        rate: tokens in a second.
        burst: what a bucket holds.
        clock: seconds from some moment on.

    >>> buckets = Buckets(rate=2.0, burst=1, clock=iter([0.0, 0.1, 0.6]).__next__)
    >>> buckets.take("me"), round(buckets.take("me"), 1), buckets.take("me")
    (0.0, 0.4, 0.0)
    """

    def __init__(
        self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = self._clock()
        left, since = self._left.get(caller, (float(self.burst), now))
        left = min(self.burst, left + self.rate * (now - since))
        taken = left >= 1
        if caller not in self._left and len(self._left) >= MOST:
            self._forget_the_idle(now)
        self._left[caller] = (left - taken, now)
        return 0.0 if taken else (1 - left) / self.rate

    def _forget_the_idle(self, now: float) -> None:
        """Drop full buckets, which say nothing, and the oldest if there are none."""
        full = self.burst / self.rate
        kept = {who: b for who, b in self._left.items() if now - b[1] < full}
        if len(kept) >= MOST:
            kept.pop(min(kept, key=lambda who: kept[who][1]))
        self._left = kept
