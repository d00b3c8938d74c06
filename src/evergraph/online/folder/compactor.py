"""A background thread that takes snapshots."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

# Time spent on deltas triggers a snapshot once it is this many times the duration of the last one.
SHARE = 3.0
logger = logging.getLogger(__name__)


class Counted(NamedTuple):
    """Deltas in the journal: their number, bytes, and the seconds spent on them."""

    deltas: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Compactor:
    """Takes a snapshot after so many deltas, bytes or seconds of them, while deltas keep coming.

    The seconds are those that a restart would spend on these deltas. They count only once they are
    three times the duration of the last snapshot, so that snapshots triggered by them take at most
    a quarter of the time. A failure (most often a full disk) is logged and tried again.

    Args:
        compact: takes a snapshot.
        every: after how many deltas.
        size: after how many bytes of deltas.
        seconds: after how many seconds spent on deltas.
        retry: seconds to wait after a failure.
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
        self.every, self.size, self.seconds = every, size, seconds
        self.retry = retry
        self.counted = Counted()  # since the last snapshot
        self.took = 0.0  # seconds of the last snapshot
        self._changed = threading.Condition()
        self._due = self._closing = False
        self._thread = threading.Thread(target=self._run, name="evergraph-compactor", daemon=True)
        self._thread.start()

    def count(self, more: Counted) -> None:
        """Count deltas that were written to the journal."""
        with self._changed:
            deltas, size, seconds = self.counted
            deltas, size, seconds = deltas + more.deltas, size + more.bytes, seconds + more.seconds
            self.counted = Counted(deltas, size, seconds)
            heavy = seconds >= max(self.seconds, SHARE * self.took)
            if deltas >= self.every or size >= self.size or heavy:
                self._due = True
                self._changed.notify()

    def restart(self) -> Counted:
        """Count from 0 again, as a snapshot will include the deltas; return the old count."""
        with self._changed:
            counted, self.counted, self._due = self.counted, Counted(), False
            return counted

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closing)
                self._due = False
                if self._closing:
                    return
            began = time.monotonic()
            try:
                self.compact()
                self.took = time.monotonic() - began
            except Exception as error:
                logger.warning("the snapshot failed and will be tried again: %s", error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, timeout=self.retry)
                    self._due = True

    def close(self) -> None:
        """Finish a snapshot that is being taken, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
