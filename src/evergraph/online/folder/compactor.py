"""A thread that takes snapshots now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

SHARE = 3.0  # times what a snapshot took: the pause before one that only saves time
logger = logging.getLogger(__name__)


class Counted(NamedTuple):
    """What was journaled: how many deltas, their bytes, and the seconds that they took."""

    deltas: int
    bytes: int
    seconds: float


class Compactor:
    """Compacts after so many deltas, bytes or seconds of them, while deltas keep coming.

    The seconds are those that a restart would spend on these deltas. A snapshot that is due only
    for these is not taken before three times as long has passed as the last one took: snapshots
    take a quarter of the time at most. What goes wrong (a full disk, most often) is logged, and
    tried again.

    Args:
        compact: what it does.
        every: after how many deltas.
        size: after how many bytes of them.
        seconds: after how many seconds of them.
        retry: seconds to wait after a failure.

    Attributes:
        deltas, bytes: what was counted since the last snapshot.
        cost: the seconds that these deltas took.
        took: seconds that the last snapshot took.

    >>> done = threading.Event()
    >>> compactor = Compactor(done.set, every=2, size=10**6, retry=1.0)
    >>> compactor.count(100)
    >>> compactor.count(100)  # the second delta wakes it
    >>> done.wait(10)
    True
    >>> compactor.close()
    """

    def __init__(
        self,
        compact: Callable[[], object],
        *,
        every: int,
        size: int,
        retry: float,
        seconds: float = 10.0,
    ) -> None:
        self.compact = compact
        self.every = every
        self.size = size
        self.seconds = seconds
        self.retry = retry
        self.deltas = self.bytes = 0
        self.cost = self.took = 0.0
        self._changed = threading.Condition()
        self._due = self._closing = False
        self._not_before = 0.0
        self._thread = threading.Thread(target=self._run, name="evergraph-compactor", daemon=True)
        self._thread.start()

    def count(self, size: int, *, deltas: int = 1, seconds: float = 0.0) -> None:
        """Count deltas that were journaled, of so many bytes together, and what they took."""
        with self._changed:
            self.deltas += deltas
            self.bytes += size
            self.cost += seconds
            self._due = self._due or self.deltas >= self.every or self.bytes >= self.size
            self._changed.notify()

    def restart(self) -> Counted:
        """Count from 0: a snapshot will hold what was counted. Return that."""
        with self._changed:
            counted = Counted(self.deltas, self.bytes, self.cost)
            self.deltas = self.bytes = 0
            self.cost = 0.0
            self._due = False
            return counted

    def _run(self) -> None:
        while self._wait():
            began = time.monotonic()
            try:
                self.compact()
            except Exception as error:
                logger.warning("no snapshot could be taken, trying again later: %s", error)
                self._wait_to_try_again()
            else:
                self.took = time.monotonic() - began
                self._not_before = time.monotonic() + SHARE * self.took

    def _wait(self) -> bool:
        """Wait until there is something to do; return whether there is, False at the end."""
        with self._changed:
            while not (self._due or self._closing or self._pause() == 0.0):
                self._changed.wait(self._pause())
            self._due = False
            return not self._closing

    def _pause(self) -> float | None:
        """Return the seconds until a snapshot is due for what deltas took; None: not yet."""
        if self.cost < self.seconds:
            return None
        return max(self._not_before - time.monotonic(), 0.0)

    def _wait_to_try_again(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, timeout=self.retry)
            self._due = True

    def close(self) -> None:
        """Finish the snapshot that is being taken, if one is, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
