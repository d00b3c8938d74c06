"""Threads that bring a process up to what another one has written."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING

from evergraph.core.errors import EvergraphError

if TYPE_CHECKING:
    from evergraph.server.metrics import Metrics
    from evergraph.server.place import Place
    from evergraph.server.service import Service

PAUSE = 0.004  # seconds between two looks at the board
PATIENCE = 1.0  # seconds that a step has to end in; the folder's lock waits for one that changes it
NOTE = 1.0  # seconds between two notes of what was answered
log = logging.getLogger(__name__)


class Following(Thread):
    """Follows in steps until it is closed; where a step fails, the process is told to stop.

    Args:
        step: one step; returns the seconds until the next.
    """

    def __init__(self, step: Callable[[], float]) -> None:
        super().__init__(name="evergraph-following", daemon=True)
        self._step = step
        self._closing = Event()
        self.failed = False

    def run(self) -> None:
        """Go on step by step."""
        wait = 0.0
        while not self._closing.wait(wait):
            try:
                wait = self._step()
            except Exception as error:
                if not self._closing.is_set():  # else the folder was closed under it
                    self._give_up(error)
                return

    def _give_up(self, error: Exception) -> None:
        # Whoever started this process may start it again, with what is on the disk.
        unforeseen = None if isinstance(error, EvergraphError) else error
        log.error("this process cannot follow any more, and stops: %s", error, exc_info=unforeseen)
        self.failed = True
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """Stop; a step that only waits for a leader is not waited for."""
        self._closing.set()
        if self.is_alive():
            self.join(PATIENCE)


class JournalSteps:
    """Follows the journal of the writer's folder, whole deltas at a time.

    Args:
        service: that of a folder opened to read.
        place: which process this is.
        metrics: what it has answered.
    """

    def __init__(self, service: Service, place: Place, metrics: Metrics) -> None:
        self._service = service
        self._place = place
        self._metrics = metrics
        self._noted = 0.0

    def __call__(self) -> float:
        """Apply what was written since; return when to look again."""
        now = time.monotonic()
        due = now - self._noted > NOTE
        if due:
            self._place.keep(self._metrics)
            self._noted = now
        if due or self._place.behind(self._service.folder.seq):
            self._service.folder.refresh()
        self._service.turn()
        return PAUSE
