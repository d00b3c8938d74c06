"""A folder that has stopped: it says so, and tries by itself to go on."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from evergraph.core.errors import DataError, ResourceError
from evergraph.online.folder.recovery import UnappliedError

AGAIN = 60.0  # seconds after which it is said again
FIRST = 1.0  # seconds until the first attempt; the pause doubles from then on
_MACHINE = (OSError, MemoryError, ResourceError, sqlite3.OperationalError)
logger = logging.getLogger(__name__)


class Healing:
    """Why a folder takes no deltas, since when, and the thread that tries to change that.

    What is wrong with a disk may pass. Where the folder itself is damaged, it stays stopped, and
    the log says so every minute.

    Args:
        path: the folder.
        heal: opens the folder anew; raises where it cannot.
        retry: seconds between two attempts, at most.

    Attributes:
        why: a sentence, None while deltas are taken.
        since: when it stopped, in Unix seconds.
        retrying: whether it is tried again.
    """

    def __init__(self, path: Path, heal: Callable[[], None], *, retry: float) -> None:
        self.path = path
        self.why: str | None = None
        self.since: float | None = None
        self.retrying = False
        self._heal = heal
        self._retry = retry
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def stop(self, why: str) -> None:
        """Take no deltas from now on, say so, and begin to try again."""
        self.why, self.since, self.retrying = why, time.time(), True
        logger.error("%s", why)
        self._thread = threading.Thread(target=self._run, name="evergraph-healing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = min(FIRST, self._retry)
        attempt, told = time.monotonic() + pause, time.monotonic()
        while self.why is not None:
            due = min(attempt, told + AGAIN) if self.retrying else told + AGAIN
            if self._closing.wait(max(due - time.monotonic(), 0.0)):
                return
            if self.retrying and time.monotonic() >= attempt:
                self._try()
                pause = min(2 * pause, self._retry)
                attempt = time.monotonic() + pause
            if self.why is not None and time.monotonic() >= told + AGAIN:
                told = time.monotonic()
                logger.error("%s (stopped for %.0f s)", self.why, time.time() - (self.since or 0.0))

    def _try(self) -> None:
        try:
            self._heal()
        except Exception as error:
            if not may_pass(error):
                self.retrying = False
                self.why = f"{self.path}: takes no deltas, and cannot be mended from here: {error}"
                logger.error("%s", self.why)

    def over(self) -> None:
        """Say that deltas are taken again."""
        passed = time.time() - (self.since or time.time())
        self.why, self.since, self.retrying = None, None, False
        logger.warning("%s: takes deltas again, after %.0f s", self.path, passed)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()


def may_pass(error: Exception) -> bool:
    """Whether an error is of the machine, which may be well again, and not of the folder.

    >>> may_pass(OSError("the disk is gone")), may_pass(DataError("delta 3 is missing"))
    (True, False)
    """
    if isinstance(error, UnappliedError):  # acknowledged, so it was applied before
        return True
    return isinstance(error.__cause__ if isinstance(error, DataError) else error, _MACHINE)
