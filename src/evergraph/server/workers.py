"""Who works: one thread that changes the learner, some for each kind of work that takes long.

And the event loop itself for small questions, those that wait at the same moment in one call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from evergraph.online.delta import NodeId
from evergraph.online.view import FEW, Answer
from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    from evergraph.online.delta import Delta, DeltaResult
    from evergraph.online.folder.learner_folder import LearnerFolder

T = TypeVar("T")


class Writer:
    """Changes a learner in a thread of its own, one call after the other; few changes may wait.

    Deltas wait in the folder's own queue, and those that wait together are taken in together. What
    nobody waits for any more is dropped if it has not begun, so it is done whole or not at all.

    Args:
        folder: whose learner is changed.
        places: how many changes may wait.

    Attributes:
        busy: seconds spent on changes.
    """

    def __init__(self, folder: LearnerFolder, *, places: int) -> None:
        self.places = places
        self.busy = 0.0
        self._folder = folder
        self._lock = Lock()
        self._calls: dict[Future[Any], float] = {}  # that wait, and when each came
        self._running: float | None = None  # when the oldest change came that is being made
        self._asked = False  # whether the thread is going to take in the deltas that wait
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evergraph-writer")
        self._closing = False

    @property
    def waiting(self) -> int:
        """How many changes wait."""
        return len(self._calls) + (0 if self._folder.readonly else len(self._folder.waiting))

    @property
    def oldest(self) -> float:
        """For how many seconds the oldest change has waited for its end; 0 where none does."""
        with self._lock:
            first = None if self._folder.readonly else self._folder.waiting.oldest
            came = [each for each in (self._running, first, *self._calls.values()) if each]
        return round(time.monotonic() - min(came), 3) if came else 0.0

    def submit(self, delta: Delta) -> Future[DeltaResult]:
        """Have a delta taken in together with those that wait; refuse where no place is left."""
        with self._lock:
            self._check_place()
            future = self._folder.waiting.offer(delta)
            if not self._asked:
                self._asked = True
                self._thread.submit(self._serve)
        return future

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Have ``function`` called when its turn comes; refuse where there is no place left."""
        with self._lock:
            self._check_place()
            future = self._thread.submit(self._run, function)
            self._calls[future] = time.monotonic()
        future.add_done_callback(lambda done: self._calls.pop(done, None))
        return future

    def _check_place(self) -> None:
        if self._closing:
            raise RefusedError(503, "the service is stopping and takes nothing more", retry_after=5)
        if self.waiting >= self.places:
            sentence = f"{self.places} changes are waiting already: send this one again later"
            raise RefusedError(503, sentence, retry_after=1)

    def _serve(self) -> None:
        with self._lock:
            self._asked = False
            self._running = self._folder.waiting.oldest
        self._timed(self._folder.waiting.serve)

    def _run(self, function: Callable[[], T]) -> T:
        with self._lock:  # the one that came first
            self._running = self._calls.pop(next(iter(self._calls)))
        return self._timed(function)

    def _timed(self, function: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return function()
        finally:
            self._running = None
            self.busy += time.monotonic() - began

    def close(self) -> None:
        """Finish what is waiting, and stop."""
        with self._lock:
            self._closing = True
        self._thread.shutdown()


class Pool:
    """Some threads for one kind of work, and places for what waits for them.

    What takes too long is answered with 503. Its thread goes on to its end and is not replaced
    before, so there are never more of them.

    Args:
        what: what is done, in the plural, for the sentence of a refusal.
        threads: how many are done at once.
        places: how many may wait.
        seconds: how long one may take, its waiting included.

    >>> async def main():
    ...     pool = Pool("sums", threads=1, places=8, seconds=5.0)
    ...     return await pool.run(lambda: 1 + 1)
    >>> asyncio.run(main())
    2
    """

    def __init__(self, what: str, *, threads: int, places: int, seconds: float) -> None:
        self.what = what
        self.threads = threads
        self.places = places
        self.seconds = seconds
        self._running = 0  # or waiting
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"evergraph-{what}")

    async def run(self, call: Callable[[], T]) -> T:
        """Return what ``call`` returns, from a thread; refuse where there is no place left."""
        if self._running >= self.threads + self.places:
            sentence = f"{self.places} {self.what} are waiting already: ask again later"
            raise RefusedError(503, sentence, retry_after=1)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        except RuntimeError:  # it was closed
            raise RefusedError(503, "the service is stopping", retry_after=5) from None
        self._running += 1
        future.add_done_callback(self._ended)
        try:
            with anyio.fail_after(self.seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            future.cancel()  # if it has not begun
            raise RefusedError(
                503, f"the answer took longer than {self.seconds:g} s", retry_after=1
            ) from None

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # nobody may be waiting for it any more

    def close(self) -> None:
        """Begin nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


# Threads for each kind of work, and how many may wait for them: what is slow of one kind holds up
# no other. Look-ups are done one at a time for the writer's sake.
KINDS = {
    "bodies": (2, 64),
    "predictions": (2, 256),
    "look-ups": (1, 64),
    "suggestions": (1, 8),
    "requests for facts": (2, 64),
    "compactions": (1, 2),
}


def pools(seconds: float) -> dict[str, Pool]:
    """Return threads for all kinds of work, each of which may take so many seconds.

    A backup may take as long as it takes.
    """
    return {
        what: Pool(what, threads=threads, places=places, seconds=seconds)
        for what, (threads, places) in KINDS.items()
    } | {"backups": Pool("backups", threads=1, places=2, seconds=3600.0)}


@dataclass(frozen=True)
class _Question:
    ids: Sequence[NodeId]
    every_class: bool
    answer: asyncio.Future[Answer]


class Together:
    """Answers small questions on the event loop, those that wait at the same moment in one call.

    Nobody waits for others to come: what has arrived by the time the loop gets to it is taken.

    Args:
        answer: returns the answer to ids; for ``True`` with the probabilities of all classes.
        most: nodes in one call.

    >>> def answer(ids, every_class):
    ...     return Answer(len(ids), tuple(ids))
    >>> async def asked():
    ...     together = Together(answer)
    ...     return await asyncio.gather(*(together.ask([node], False) for node in "abc"))
    >>> asyncio.run(asked())[1]  # all three were asked at once
    Answer(seq=3, predictions=('b',), classes=None)
    """

    def __init__(
        self, answer: Callable[[Sequence[NodeId], bool], Answer], *, most: int = FEW
    ) -> None:
        self._answer = answer
        self.most = most
        self._waiting: deque[_Question] = deque()

    def ask(self, ids: Sequence[NodeId], every_class: bool) -> asyncio.Future[Answer]:
        """Return what will hold the answer, or what is wrong with the question."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._turn)
        question = _Question(ids, every_class, loop.create_future())
        self._waiting.append(question)
        return question.answer

    def _turn(self) -> None:
        """Answer those that wait; where there are many, some at a time."""
        some: list[_Question] = []
        count = 0
        while self._waiting and (not some or count + len(self._waiting[0].ids) <= self.most):
            some.append(self._waiting.popleft())
            count += len(some[-1].ids)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        for every_class in (False, True):
            alike = [q for q in some if q.every_class == every_class and not q.answer.done()]
            if alike:
                self._answer_alike(alike, every_class)

    def _answer_alike(self, questions: Sequence[_Question], every_class: bool) -> None:
        try:
            found = self._answer([node for q in questions for node in q.ids], every_class)
        except Exception as error:
            if len(questions) == 1:
                questions[0].answer.set_exception(error)
                return
            for question in questions:  # one of them is wrong: the others need not suffer
                self._answer_alike([question], every_class)
            return
        start = 0
        for question in questions:
            part = found.predictions[start : (start := start + len(question.ids))]
            question.answer.set_result(Answer(found.seq, part, found.classes))
