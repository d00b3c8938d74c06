"""The one thread that changes a learner."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import Any, TypeVar

from evergraph.server.http import RefusedError

T = TypeVar("T")
Item = TypeVar("Item")
MOST = 64  # calls that are joined
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Job:
    """A call that waits.

    Attributes:
        function: what is called: with nothing, or, where calls can be joined, with a list of items.
        future: who waits is told through it.
        items: of this call, one; none where it is made alone.
        came: when it began to wait, by the monotonic clock.
    """

    function: Callable[..., Any]
    future: Future[Any]
    items: tuple[Any, ...] = ()
    came: float = field(default_factory=time.monotonic)


class Writer:
    """Runs calls one after the other in a thread of its own; those that wait have few places.

    Calls that can be joined and wait one behind the other are made as one.

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
        self._jobs: Queue[_Job | None] = Queue(places)
        self._closing = False
        self._running: float | None = None  # when the oldest call came that is being made
        self.busy = 0.0  # seconds spent on calls
        self._lock = Lock()
        self._thread = Thread(target=self._work, name="evergraph-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return self._jobs.qsize()

    @property
    def oldest(self) -> float:
        """For how many seconds the oldest call has waited for its end; 0 where none does.

        >>> writer = Writer(places=1)
        >>> writer.oldest
        0.0
        >>> writer.close()
        """
        with self._jobs.mutex:
            first = next((job for job in self._jobs.queue if job is not None), None)
        came = [each for each in (self._running, first and first.came) if each is not None]
        return round(time.monotonic() - min(came), 3) if came else 0.0

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Have ``function`` called when its turn comes; refuse where there is no place left."""
        return self._wait(_Job(function, Future()))

    def join(
        self, function: Callable[[Sequence[Item]], Sequence[T | Exception]], item: Item
    ) -> Future[T]:
        """Have ``function`` called with all items that wait for it one behind the other.

        It returns what each is answered with; an exception is raised for that one alone.

        >>> writer = Writer(places=2)
        >>> writer.join(lambda items: [len(items)] * len(items), "item").result()
        1
        >>> writer.close()
        """
        return self._wait(_Job(function, Future(), (item,)))

    def _wait(self, job: _Job) -> Future[Any]:
        with self._lock:  # nothing may slip in behind the last job
            if self._closing:
                raise RefusedError(
                    503, "the service is stopping and takes nothing more", retry_after=5
                )
            try:
                self._jobs.put_nowait(job)
            except Full:
                sentence = f"{self.places} changes are waiting already: send this one again later"
                raise RefusedError(503, sentence, retry_after=1) from None
        return job.future

    def close(self) -> None:
        """Finish what is waiting, and stop."""
        with self._lock:
            first, self._closing = not self._closing, True
        if first:
            self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        following = None
        while (job := following or self._jobs.get()) is not None:
            jobs, following, ended = self._joined(job)
            self._running, began = jobs[0].came, time.monotonic()
            _run([each for each in jobs if each.future.set_running_or_notify_cancel()])
            self._running = None if following is None else following.came
            self.busy += time.monotonic() - began
            del job, jobs  # what a call held is not kept until the next one
            if ended:
                return

    def _joined(self, first: _Job) -> tuple[list[_Job], _Job | None, bool]:
        """Return calls to be made as one, the one behind them, and whether it is the end."""
        jobs = [first]
        while first.items and len(jobs) < MOST:
            try:
                following = self._jobs.get_nowait()
            except Empty:
                break
            if following is None:
                return jobs, None, True
            if not following.items or following.function != first.function:
                return jobs, following, False
            jobs.append(following)
        return jobs, None, False


def _run(jobs: Sequence[_Job]) -> None:
    """Call the one function of some jobs, and tell those who wait."""
    if not jobs:
        return
    function = jobs[0].function
    try:
        items = [item for job in jobs for item in job.items]
        answers = function(items) if items else [function()]
    except BaseException as error:  # whoever waits is told; the thread goes on
        answers = [error] * len(jobs)
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, BaseException):
            job.future.set_exception(answer)
        else:
            job.future.set_result(answer)
