"""Threads of the service: one that changes the learner, and a pool for each kind of slow work.

Small predictions run on the event loop itself, those that wait at the same moment in one call.
Requests begin there a few at a time, so that many of one client do not hold up the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evergraph.online.delta import NodeId
from evergraph.online.view import FEW, Answer
from evergraph.server.http import RefusedError, let_go

if TYPE_CHECKING:
    from evergraph.online.delta import Delta, DeltaResult
    from evergraph.online.folder.learner_folder import LearnerFolder

T = TypeVar("T")
HOLD = 0.01  # seconds that a batch of predictions may hold up the event loop
PACES = 4  # batches whose duration is remembered
TURN = 0.002  # seconds for the requests that begin in one turn of the event loop
MORE = 32  # requests that begin in one turn, at most, while others wait


class Writer:
    """The thread that changes a learner, one call at a time, with a bounded queue.

    Deltas wait in the folder's own queue and are applied in batches. A change whose client has gone
    is dropped if it has not begun, so it happens entirely or not at all. ``places`` changes may
    wait; ``busy`` are the seconds spent on changes.
    """

    def __init__(self, folder: LearnerFolder, *, places: int) -> None:
        self.places = places
        self.busy = 0.0
        self._folder = folder
        self._lock = Lock()
        self._calls: dict[Future[Any], float] = {}  # waiting calls, and when each came
        self._running: float | None = None  # when the oldest change now being applied came
        self._scheduled = False  # whether the thread is about to apply the waiting deltas
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evergraph-writer")
        self._closing = False

    @property
    def waiting(self) -> int:
        """How many changes wait."""
        return len(self._calls) + (0 if self._folder.readonly else len(self._folder.waiting))

    @property
    def oldest(self) -> float:
        """Age of the oldest unfinished change in seconds; 0 if there is none."""
        with self._lock:
            first = None if self._folder.readonly else self._folder.waiting.oldest
            came = [each for each in (self._running, first, *self._calls.values()) if each]
        return round(time.monotonic() - min(came), 3) if came else 0.0

    def submit(self, delta: Delta) -> Future[DeltaResult]:
        """Queue a delta for the next batch; reject it if the queue is full."""
        with self._lock:
            self._check_room()
            future = self._folder.waiting.offer(delta)
            if not self._scheduled:
                self._scheduled = True
                self._thread.submit(self._work, self._folder.waiting.serve, deltas=True)
        return future

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Queue a call; reject it if the queue is full."""
        with self._lock:
            self._check_room()
            future = self._thread.submit(self._work, function)
            self._calls[future] = time.monotonic()
        future.add_done_callback(lambda done: self._calls.pop(done, None))
        return future

    def _check_room(self) -> None:
        if self._closing:
            raise RefusedError(503, "the service is stopping", retry_after=5)
        if self.waiting >= self.places:
            sentence = f"{self.places} changes are waiting already: send this one again later"
            raise RefusedError(503, sentence, retry_after=1)

    def _work(self, function: Callable[[], T], *, deltas: bool = False) -> T:
        with self._lock:
            if deltas:  # all that wait by now
                self._scheduled, self._running = False, self._folder.waiting.oldest
            else:  # the one that came first
                self._running = self._calls.pop(next(iter(self._calls)))
        began = time.monotonic()
        try:
            return function()
        finally:
            self._running = None
            self.busy += time.monotonic() - began

    def close(self) -> None:
        """Finish the queue, and stop."""
        with self._lock:
            self._closing = True
        self._thread.shutdown()


class Pool:
    """A thread for one kind of work, with a bounded queue.

    A call that takes too long is answered with 503. The thread runs on and is not replaced.

    what: the work in the plural, for error messages; places: calls that may wait; seconds: time for
    a call, waiting included.
    """

    def __init__(self, what: str, *, places: int, seconds: float) -> None:
        self.what, self.places, self.seconds = what, places, seconds
        self._running = 0  # or waiting
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"evergraph-{what}")

    async def run(self, call: Callable[[], T]) -> T:
        """Run ``call`` on a thread and return its result; reject it if the queue is full."""
        if self._running > self.places:
            sentence = f"{self.places} {self.what} are waiting already: try again later"
            raise RefusedError(503, sentence, retry_after=1, hang_up=True)
        try:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._executor, self._work, call)
        except RuntimeError:  # it was closed
            raise RefusedError(503, "the service is stopping", retry_after=5) from None
        self._running += 1
        future.add_done_callback(self._ended)
        done, _ = await asyncio.wait([future], timeout=self.seconds)  # goes on if this is cancelled
        if not done:
            future.cancel()  # if it has not begun
            raise RefusedError(
                503, f"the answer took longer than {self.seconds:g} s", retry_after=1
            )
        return future.result()

    def _work(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BaseException as error:
            let_go(error)  # here, since on the event loop others would wait for it
            raise

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # mark it as seen: perhaps no request waits for it any more

    def close(self) -> None:
        """Drop what waits, and accept nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


# Queue length for each kind of work, so that slow work of one kind delays no other. Each has one
# thread, to leave the interpreter lock to the event loop and to the writer.
KINDS = {
    "bodies": 64,
    "predictions": 256,
    "small predictions": 256,  # of a slow head; others are made on the event loop
    "look-ups": 64,
    "suggestions": 8,
    "requests for facts": 64,
    "compactions": 2,
}


def pools(seconds: float) -> dict[str, Pool]:
    """Return a pool for each kind of work, with this time limit; a backup may take an hour."""
    found = {what: Pool(what, places=places, seconds=seconds) for what, places in KINDS.items()}
    return found | {"backups": Pool("backups", places=2, seconds=3600.0)}


class Turns:
    """Spreads requests that come at the same moment over several turns of the event loop.

    A request is handled without a pause until it waits for a thread. Of two hundred at once each
    step would take a tenth of a second, and others wait for several such steps: here those of
    different clients begin in turn.
    """

    def __init__(self) -> None:
        self._began = 0.0  # when the first request of this turn began; 0: none has
        self._more = 1  # that may begin in the next turn, if some wait
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client, the next one first

    def take(self, client: str) -> asyncio.Future[None] | None:
        """Return a future for when a request may begin, None if it may at once."""
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        if not self._began:
            self._began = now
            loop.call_soon(self._turn, loop)
        if not self._waiting and now - self._began < TURN:
            return None
        future = loop.create_future()
        self._waiting.setdefault(client, deque()).append(future)
        return future

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now, began, self._began = time.perf_counter(), self._began, 0.0
        self._more = max(self._more // 2, 1) if now - began > TURN else min(2 * self._more, MORE)
        for _ in range(self._more):
            if not self._waiting:
                return
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            future = queue.popleft()
            if queue:
                self._waiting[client] = queue  # behind the others
            if not future.done():
                future.set_result(None)
        self._began = now
        loop.call_soon(self._turn, loop)


class _Question(NamedTuple):
    ids: Sequence[NodeId]
    every_class: bool
    answer: asyncio.Future[Answer]


class Together:
    """Answers small questions on the event loop, batching those that wait at the same moment.

    No question is delayed to wait for others: a batch is what has arrived when the loop gets to it.

    answer: returns the answer for ids, with ``True`` including all probabilities; most: nodes in
    one batch. A head may be slow, in which case they are fewer (``answered``): those that ask for
    more than ``most`` nodes are to use a thread.
    """

    def __init__(
        self, answer: Callable[[Sequence[NodeId], bool], Answer], *, most: int = FEW
    ) -> None:
        self._answer = answer
        self.most = most
        self._paces: deque[float] = deque(maxlen=PACES)  # seconds a node
        self._waiting: deque[_Question] = deque()

    def answered(self, nodes: int, seconds: float) -> None:
        """Note how long an answer took on any thread: as many as fit into ``HOLD`` are a batch.

        seconds: of the CPU, since under load every call waits for other threads. Of the last few
        the quickest counts.
        """
        if 0 < nodes <= FEW:
            self._paces.append(seconds / nodes)
            self.most = min(FEW, int(HOLD / max(min(self._paces), 1e-9)))

    def ask(self, ids: Sequence[NodeId], every_class: bool) -> asyncio.Future[Answer]:
        """Return a future for the answer, or for the error."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer_batch)
        question = _Question(ids, every_class, loop.create_future())
        self._waiting.append(question)
        return question.answer

    def _answer_batch(self) -> None:
        """Answer the questions that wait, at most ``most`` nodes at a time."""
        batch: list[_Question] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0].ids) <= self.most):
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
