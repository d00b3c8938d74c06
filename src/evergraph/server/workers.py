"""Threads of the service: one that changes the learner, and a pool for each kind of slow work.

Small predictions run on the event loop itself, those that wait at the same moment in one call.
Wherever work waits for a thread, callers take turns (``FairQueue``), and none takes more than half
of the places.
"""

from __future__ import annotations

import asyncio
import time
from bisect import insort_left, insort_right
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from starlette.requests import ClientDisconnect

from evergraph.online.delta import NodeId
from evergraph.online.view import Answer
from evergraph.server.bodies import Steps
from evergraph.server.http import CALLER, RefusedError, clear_frames

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder

T = TypeVar("T")
NODES_AT_ONCE = 16  # nodes of a batch of predictions, which nobody else is answered during
STEP_SECONDS = 0.005  # after which a thread goes on with the work of another caller


class Writer:
    """The thread that changes a learner, with a bounded queue: that of its folder.

    A change whose client has gone is dropped if it has not begun. ``busy`` are the seconds spent on
    changes.
    """

    def __init__(self, folder: LearnerFolder, *, places: int) -> None:
        self.places = places
        self.busy = 0.0
        self._folder = folder
        self._lock = Lock()
        # Of all changes that are not done, in order: who sent each, and when it came.
        self._unfinished: dict[Future[Any], tuple[str, float]] = {}
        self._scheduled = False  # whether the thread is about to apply what waits
        self.applies = False  # whether it does now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evergraph-writer")
        self._closing = False

    @property
    def waiting(self) -> int:
        """How many changes wait."""
        return sum(not change.running() for change in list(self._unfinished))

    @property
    def oldest(self) -> float:
        """Age of the oldest unfinished change in seconds; 0 if there is none."""
        came = [came for _, came in list(self._unfinished.values())]
        return round(time.monotonic() - came[0], 3) if came else 0.0

    def submit(self, delta: Delta, call: Callable[[], Any] | None = None) -> Future[Any]:
        """Queue a delta, or a call that applies it; reject it if the queue is full."""
        caller = CALLER.get()
        with self._lock:
            self._check_room(caller)
            future = self._folder.waiting.offer(delta, caller, call)
            self._unfinished[future] = caller, time.monotonic()
            if not self._scheduled:
                self._scheduled = True
                self._thread.submit(self._serve)
        future.add_done_callback(lambda done: self._unfinished.pop(done, None))
        return future

    def _check_room(self, caller: str) -> None:
        if self._closing:
            raise RefusedError(503, "the service is stopping", retry_after=5)
        if self.waiting >= self.places:
            sentence = f"{self.places} changes are waiting already: send this one again later"
            raise RefusedError(503, sentence, retry_after=1)
        changes = list(self._unfinished.items())
        own = sum(sender == caller and not change.running() for change, (sender, _) in changes)
        check_share("changes", own, self.places)

    def _serve(self) -> None:
        with self._lock:
            self._scheduled = False
        began, self.applies = time.monotonic(), True
        try:
            self._folder.waiting.serve()
        finally:
            self.busy, self.applies = self.busy + time.monotonic() - began, False

    def close(self) -> None:
        """Finish the queue, and stop."""
        with self._lock:
            self._closing = True
        self._thread.shutdown()


class FairQueue(Generic[T]):
    """Items of several callers, who take turns; the smallest of a caller comes first.

    >>> queue = FairQueue()
    >>> for caller, item, size in ("a", "large", 9), ("a", "small", 1), ("b", "other", 5):
    ...     queue.put(caller, item, size)
    >>> [queue.take()[1] for _ in range(3)]
    ['small', 'other', 'large']
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[int, T]]] = {}  # by caller, whose turn is next first

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, caller: str, item: T, size: int = 0, *, again: bool = False) -> None:
        """Add an item behind those of its size, or before them if it was taken before."""
        insert = insort_left if again else insort_right
        insert(self._lines.setdefault(caller, []), (size, item), key=itemgetter(0))

    def take(self) -> tuple[str, T, int]:
        """Remove the next item; return it with its caller and size."""
        caller = next(iter(self._lines))
        line = self._lines.pop(caller)
        size, item = line.pop(0)
        if line:
            self._lines[caller] = line  # behind the others
        return caller, item, size


class _Job(NamedTuple):
    steps: Steps[Any]
    answer: Future[Any]


class Pool:
    """A thread for one kind of work, of which callers get equal shares, with a bounded queue.

    Work may come in steps, between which others have their turn. What takes too long is answered
    with 503 and goes no further than its next step.

    what: the work in the plural, for error messages; places: calls that may wait; seconds: time for
    a call, waiting included.
    """

    def __init__(self, what: str, *, places: int, seconds: float) -> None:
        self.what, self.places, self.seconds = what, places, seconds
        self._lock = Lock()
        self._jobs: FairQueue[_Job] = FairQueue()
        self._unfinished: Counter[str] = Counter()  # by caller
        self._closed = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"evergraph-{what}")

    async def run(
        self,
        work: Callable[[], T] | Steps[T],
        *,
        size: int = 0,
        gone: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Do work on the thread and return its result; reject it if the queue is full.

        size: how much it is, compared to other work of the same caller; gone: returns once nobody
        waits for the answer any more.
        """
        steps = work if isinstance(work, Generator) else _in_one_step(work)
        caller, job = CALLER.get(), _Job(steps, Future())
        with self._lock:
            if self._closed:
                raise RefusedError(503, "the service is stopping", retry_after=5)
            if self._unfinished.total() > self.places:  # one of them is not waiting
                sentence = f"{self.places} {self.what} are waiting already: try again later"
                raise RefusedError(503, sentence, retry_after=1, hang_up=True)
            check_share(self.what, self._unfinished[caller] - 1, self.places)
            self._unfinished[caller] += 1
            self._jobs.put(caller, job, size)
            self._executor.submit(self._work)
        answer = asyncio.wrap_future(job.answer)
        ends: list[asyncio.Future[Any]] = [answer]
        if gone is not None:
            ends.append(asyncio.ensure_future(gone()))
        try:
            await asyncio.wait(ends, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return cast("T", answer.result())
            if ends[-1].done():
                raise ClientDisconnect
            late = f"the answer took longer than {self.seconds:g} s"
            raise RefusedError(503, late, retry_after=1)
        finally:
            for end in ends:
                end.cancel()  # nobody waits for it any more

    def _work(self) -> None:
        """Go on with the job whose turn it is, for a while."""
        with self._lock:
            caller, job, size = self._jobs.take()
        until = time.perf_counter() + STEP_SECONDS
        try:
            while not job.answer.cancelled():
                next(job.steps)
                if time.perf_counter() >= until and self._goes_on(caller, job, size):
                    return
            job.steps.close()
        except StopIteration as ended:
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result(ended.value)
        except BaseException as error:
            clear_frames(error)  # here, since on the event loop others would wait for it
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(error)
        with self._lock:
            self._unfinished[caller] -= 1
            self._unfinished += Counter()  # without callers that have none

    def _goes_on(self, caller: str, job: _Job, size: int) -> bool:
        """Whether a job is to go on later, after those of other callers."""
        with self._lock:
            if self._closed:
                job.answer.cancel()
                return False
            self._jobs.put(caller, job, size, again=True)
            self._executor.submit(self._work)
            return True

    def close(self) -> None:
        """Drop what waits, and accept nothing more."""
        with self._lock:
            self._closed = True
            self._executor.shutdown(wait=False, cancel_futures=True)
            while self._jobs:
                self._jobs.take()[1].answer.cancel()


def giving_way(steps: Steps[T], writer: Writer) -> Steps[T]:
    """Pause after every step while something is written: both hold the interpreter lock."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return cast("T", ended.value)
        if writer.applies:
            time.sleep(STEP_SECONDS)
        yield


def _in_one_step(call: Callable[[], T]) -> Steps[T]:
    yield from ()
    return call()


def check_share(what: str, waiting: int, places: int) -> None:
    """Raise if a caller has taken half of all places, the others being for others."""
    most = max(places // 2, 1)
    if waiting >= most:
        sentence = f"{most} {what} of this caller are waiting already: try again later"
        raise RefusedError(429, sentence, retry_after=1, hang_up=True)


# Queue length for each kind of work, so that slow work of one kind delays no other. Each has one
# thread, to leave the interpreter lock to the event loop and to the writer.
KINDS = {
    "bodies": 128,
    "predictions": 256,  # other than those that the event loop makes
    "look-ups": 128,
    "suggestions": 8,
    "questions": 8,  # about changes, each of which takes a copy of the learner
    "requests for facts": 128,
    "compactions": 2,
}


def pools(seconds: float) -> dict[str, Pool]:
    """Return a pool for each kind of work, with this time limit; a backup may take an hour."""
    found = {what: Pool(what, places=places, seconds=seconds) for what, places in KINDS.items()}
    return found | {"backups": Pool("backups", places=2, seconds=3600.0)}


class _Question(NamedTuple):
    ids: Sequence[NodeId]
    every_class: bool
    answer: asyncio.Future[Answer]


class PredictionBatches:
    """Answers small questions on the event loop, batching those that wait at the same moment.

    No question is delayed to wait for others: a batch is what has arrived when the loop gets to it.

    Questions about more than ``NODES_AT_ONCE`` nodes are for a thread. answer: returns the answer for
    ids, with ``True`` including all probabilities.
    """

    def __init__(self, answer: Callable[[Sequence[NodeId], bool], Answer]) -> None:
        self._answer = answer
        self._waiting: deque[_Question] = deque()

    def ask(self, ids: Sequence[NodeId], every_class: bool) -> asyncio.Future[Answer]:
        """Return a future for the answer, or for the error."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer_batch)
        question = _Question(ids, every_class, loop.create_future())
        self._waiting.append(question)
        return question.answer

    def _answer_batch(self) -> None:
        """Answer the questions that wait, at most ``NODES_AT_ONCE`` nodes at a time."""
        batch: list[_Question] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0].ids) <= NODES_AT_ONCE):
            batch.append(self._waiting.popleft())
            count += len(batch[-1].ids)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._answer_batch)
        for every_class in (False, True):
            alike = [q for q in batch if q.every_class == every_class and not q.answer.done()]
            if alike:
                self._answer_alike(alike, every_class)

    def _answer_alike(self, questions: Sequence[_Question], every_class: bool) -> None:
        try:
            found = self._answer([node for q in questions for node in q.ids], every_class)
        except Exception as error:
            if len(questions) == 1:
                questions[0].answer.set_exception(error)
                return
            for question in questions:  # one of them is invalid: answer each by itself
                self._answer_alike([question], every_class)
            return
        start = 0
        for question in questions:
            part = found.predictions[start : (start := start + len(question.ids))]
            question.answer.set_result(Answer(found.seq, part, found.classes))
