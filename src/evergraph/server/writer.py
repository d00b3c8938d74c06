"""The one thread that changes a learner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from queue import Full, Queue
from threading import Lock, Thread
from typing import Any, TypeVar

from evergraph.server.http import RefusedError

T = TypeVar("T")
Job = tuple[Callable[[], Any], "Future[Any]"]
log = logging.getLogger(__name__)


class Writer:
    """Runs calls one after the other in a thread of its own; those that wait have few places.

    A call that nobody waits for any more is dropped if it has not begun, so it is done whole or
    not at all.

    Args:
        places: how many calls may wait.

    >>> writer = Writer(places=1)
    >>> writer.call(lambda: 6 * 7).result()
    42
    >>> writer.close()
    >>> writer.call(lambda: 6 * 7)
    Traceback (most recent call last):
    evergraph.server.http.RefusedError: the service is stopping and takes nothing more
    """

    def __init__(self, *, places: int) -> None:
        self.places = places
        self._jobs: Queue[Job | None] = Queue(places)
        self._closing = False
        self._lock = Lock()
        self._thread = Thread(target=self._work, name="evergraph-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return self._jobs.qsize()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Have ``function`` called when its turn comes; refuse where there is no place left."""
        future: Future[T] = Future()
        with self._lock:  # nothing may slip in behind the last job
            if self._closing:
                raise RefusedError(
                    503, "the service is stopping and takes nothing more", retry_after=5
                )
            try:
                self._jobs.put_nowait((function, future))
            except Full:
                sentence = f"{self.places} changes are waiting already: send this one again later"
                raise RefusedError(503, sentence, retry_after=1) from None
        return future

    def close(self) -> None:
        """Finish what is waiting, and stop."""
        with self._lock:
            first, self._closing = not self._closing, True
        if first:
            self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:  # whoever waits is told; the thread goes on
                future.set_exception(error)
            else:
                future.set_result(result)
            del job, function, future  # what a call held is not kept until the next one
