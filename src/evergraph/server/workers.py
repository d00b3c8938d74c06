"""Threads of the service: one that changes the learner, and a pool for each kind of slow work.

Wherever work waits for a thread, callers take turns, and none takes more than half of a queue.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import anyio

from evergraph.server.http import CALLER, RefusedError, clear_frames

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder

T = TypeVar("T")


class Writer:
    """The thread that changes a learner, with a bounded queue: that of its folder.

    A change whose client has gone is dropped if it has not begun. ``busy`` are the seconds spent on
    changes.
    """

    def __init__(self, folder: LearnerFolder, *, queue_size: int) -> None:
        self.queue_size = queue_size
        self.busy = 0.0
        self._folder = folder
        self._lock = Lock()
        # Of all changes that are not done, in order: who sent each, and when it came.
        self._unfinished: dict[Future[Any], tuple[str, float]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evergraph-writer")
        self._closing = False

    @property
    def waiting(self) -> int:
        """How many changes wait."""
        return sum(_waits(change) for change in list(self._unfinished))

    @property
    def oldest(self) -> float:
        """Age of the oldest unfinished change in seconds; 0 if there is none."""
        arrivals = [arrival for _, arrival in list(self._unfinished.values())]
        return round(time.monotonic() - arrivals[0], 3) if arrivals else 0.0

    def submit(self, delta: Delta, call: Callable[[], Any] | None = None) -> Future[Any]:
        """Queue a delta, or a call that applies it; reject it if the queue is full."""
        caller = CALLER.get()
        with self._lock:
            self._check_room(caller)
            future = self._folder.waiting.offer(delta, caller, call)
            self._unfinished[future] = caller, time.monotonic()
            self._thread.submit(self._serve)
        future.add_done_callback(lambda done: self._unfinished.pop(done, None))
        return future

    def _check_room(self, caller: str) -> None:
        if self._closing:
            raise RefusedError(503, "the service is stopping", retry_after=5)
        if self.waiting >= self.queue_size:
            sentence = f"{self.queue_size} changes are waiting already: send this one again later"
            raise RefusedError(503, sentence, retry_after=1)
        changes = list(self._unfinished.items())
        waiting = sum(sender == caller and _waits(change) for change, (sender, _) in changes)
        check_share("changes", waiting, self.queue_size)

    def _serve(self) -> None:
        began = time.monotonic()
        try:
            self._folder.waiting.serve()
        finally:
            self.busy += time.monotonic() - began

    def close(self) -> None:
        """Finish the queue, and stop."""
        with self._lock:
            self._closing = True
        self._thread.shutdown()


def _waits(change: Future[Any]) -> bool:
    return not (change.running() or change.done())  # it may be done a moment before it is dropped


class Pool:
    """Threads for one kind of work, with a bounded queue, where callers take turns.

    Of each caller one call runs at a time, so that those of others never wait for all of its calls.
    What takes too long is answered with 503; its thread goes on to the end.

    what: the work in the plural, for error messages; queue_size: calls that may wait; seconds: time
    for a call, waiting included; threads: with two of them, a caller that asks for much leaves one
    to the others.
    """

    def __init__(self, what: str, *, queue_size: int, seconds: float, threads: int = 1) -> None:
        self.what = what
        self.queue_size = queue_size
        self.seconds = seconds
        self.threads = threads
        self._unfinished: Counter[str] = Counter()  # by caller
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"evergraph-{what}")
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call on a thread and return its result; reject it if the queue is full."""
        caller = CALLER.get()
        if self._unfinished.total() >= self.queue_size + self.threads:
            sentence = f"{self.queue_size} {self.what} are waiting already: try again later"
            raise RefusedError(503, sentence, retry_after=1, hang_up=True)
        check_share(self.what, self._unfinished[caller] - 1, self.queue_size)
        semaphore = self._semaphores.setdefault(caller, asyncio.Semaphore(1))
        self._unfinished[caller] += 1
        try:
            with anyio.fail_after(self.seconds):
                await semaphore.acquire()
                return await asyncio.shield(self._start(call, semaphore))
        except TimeoutError:
            sentence = f"the answer took longer than {self.seconds:g} s"
            raise RefusedError(503, sentence, retry_after=1) from None
        finally:
            self._unfinished[caller] -= 1
            self._unfinished += Counter()  # without callers that have none

    def _start(self, call: Callable[[], T], semaphore: asyncio.Semaphore) -> asyncio.Future[T]:
        """Begin a call; the turn ends with it, whether or not somebody still waits for it."""
        if self._closed:
            semaphore.release()  # to those behind it, who are told the same
            raise RefusedError(503, "the service is stopping", retry_after=5)

        def end(done: asyncio.Future[T]) -> None:
            semaphore.release()
            if not done.cancelled():
                done.exception()  # else asyncio complains if nobody waits for it any more

        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(
            self._executor, copy_context().run, _call_clearing_frames, call
        )
        future.add_done_callback(end)
        return future

    def close(self) -> None:
        """Drop what waits, and accept nothing more."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)


def _call_clearing_frames(call: Callable[[], T]) -> T:
    """Make a call; clear the frames of an error here, since on the event loop others would wait."""
    try:
        return call()
    except BaseException as error:
        clear_frames(error)
        raise


def check_share(what: str, waiting: int, queue_size: int) -> None:
    """Raise if a caller has taken half of the queue: the other half is for others."""
    share = max(queue_size // 2, 1)
    if waiting >= share:
        sentence = f"{share} {what} of this caller are waiting already: try again later"
        raise RefusedError(429, sentence, retry_after=1, hang_up=True)


# Queue length and threads for each kind of work, so that slow work of one kind delays no other. There
# are few threads, to leave the interpreter lock to the event loop and to the writer.
KINDS = {
    "bodies": (128, 2),
    "predictions": (256, 2),  # other than those that the event loop makes
    "look-ups": (128, 1),
    "suggestions": (8, 1),
    "questions": (8, 1),  # about changes, each of which takes a copy of the learner
    "requests for facts": (128, 1),
    "compactions": (2, 1),
}


def pools(seconds: float) -> dict[str, Pool]:
    """Return a pool for each kind of work, with this time limit; a backup may take an hour."""
    by_work = {
        what: Pool(what, queue_size=size, seconds=seconds, threads=threads)
        for what, (size, threads) in KINDS.items()
    }
    return by_work | {"backups": Pool("backups", queue_size=2, seconds=3600.0)}
