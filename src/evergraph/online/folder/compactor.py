"""A thread that takes snapshots now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Compactor:
    """Compacts after so many deltas or bytes, while deltas keep coming.

    What goes wrong (a full disk, most often) is logged, and tried again.

    Args:
        compact: what it does.
        every: after how many deltas.
        size: after how many bytes of them.
        retry: seconds to wait after a failure.

    >>> done = threading.Event()
    >>> compactor = Compactor(done.set, every=2, size=10**6, retry=1.0)
    >>> compactor.count(100)
    >>> compactor.count(100)  # the second delta wakes it
    >>> done.wait(10)
    True
    >>> compactor.close()
    """

    def __init__(
        self, compact: Callable[[], object], *, every: int, size: int, retry: float
    ) -> None:
        self.compact = compact
        self.every = every
        self.size = size
        self.retry = retry
        self.deltas = self.bytes = 0
        self._changed = threading.Condition()
        self._due = self._closing = False
        self._thread = threading.Thread(target=self._run, name="evergraph-compactor", daemon=True)
        self._thread.start()

    def count(self, size: int, *, deltas: int = 1) -> None:
        """Count deltas that were journaled, of so many bytes together."""
        with self._changed:
            self.deltas += deltas
            self.bytes += size
            self._due = self._due or self.deltas >= self.every or self.bytes >= self.size
            self._changed.notify()

    def restart(self) -> tuple[int, int]:
        """Count from 0: a snapshot will hold what was counted. Return deltas and bytes."""
        with self._changed:
            counted = self.deltas, self.bytes
            self.deltas = self.bytes = 0
            self._due = False
            return counted

    def _run(self) -> None:
        while self._wait():
            try:
                self.compact()
            except Exception as error:
                logger.warning("no snapshot could be taken, trying again later: %s", error)
                self._wait_to_try_again()

    def _wait(self) -> bool:
        """Wait until there is something to do; return whether there is, False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._closing)
            self._due = False
            return not self._closing

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
