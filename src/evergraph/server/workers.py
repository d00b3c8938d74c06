"""Who works: one thread that changes the learner, some for each kind of work that takes long.

And the event loop itself for small questions, those that wait at the same moment in one call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import Any, TypeVar

import anyio

from evergraph.online.delta import NodeId
from evergraph.online.view import FEW, Answer
from evergraph.server.http import RefusedError

T = TypeVar("T")
Item = TypeVar("Item")
MOST = 64  # calls that are joined


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


@dataclass(frozen=True)
class Pools:
    """The kinds of work that are kept apart.

    Attributes:
        bodies: reading small bodies.
        large_bodies: reading large ones, one at a time.
        predictions: of many nodes.
        lookups: of nodes and their surroundings; one at a time, for the writer's sake.
        suggestions: which look at the whole graph.
        facts: status, history, keys, ids.
        backups: one at a time, and as long as it takes.
    """

    bodies: Pool
    large_bodies: Pool
    predictions: Pool
    lookups: Pool
    suggestions: Pool
    facts: Pool
    backups: Pool

    @classmethod
    def of(cls, seconds: float) -> Pools:
        """Return pools whose work may take so many seconds."""

        def pool(what: str, threads: int, places: int) -> Pool:
            return Pool(what, threads=threads, places=places, seconds=seconds)

        return cls(
            bodies=pool("bodies", 2, 64),
            large_bodies=pool("large bodies", 1, 8),
            predictions=pool("predictions", 2, 256),
            lookups=pool("look-ups", 1, 64),
            suggestions=pool("suggestions", 1, 8),
            facts=pool("requests for facts", 2, 64),
            backups=Pool("backups", threads=1, places=2, seconds=3600.0),
        )

    def close(self) -> None:
        """Begin nothing more."""
        every = (self.bodies, self.large_bodies, self.predictions)
        for pool in (*every, self.lookups, self.suggestions, self.facts, self.backups):
            pool.close()


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
        self._waiting: list[_Question] = []

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
        for question in self._waiting:
            count += len(question.ids)
            if some and count > self.most:
                break
            some.append(question)
        del self._waiting[: len(some)]
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
            if len(questions) > 1:  # one of them is wrong: the others need not suffer
                for question in questions:
                    self._answer_alike([question], every_class)
            else:
                questions[0].answer.set_exception(error)
            return
        start = 0
        for question in questions:
            part = found.predictions[start : (start := start + len(question.ids))]
            question.answer.set_result(Answer(found.seq, part, found.classes))
