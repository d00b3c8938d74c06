"""The queue of changes: deltas are applied in batches, calls one by one."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from evergraph.core.errors import DataError, EvergraphError, ResourceError, StoppedError
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal import Journal, JournalEntry, key_reused
from evergraph.online.folder.markers import KeptColumns
from evergraph.online.intake import Batch
from evergraph.online.learner import OnlineLearner

ROUND_ITEMS = 4096  # nodes and edges of one caller, about, after which others have their turn


@dataclass(eq=False)
class QueuedDelta:
    """A delta in the queue, or a call that makes one once all before it are applied."""

    delta: Delta
    caller: str = ""  # who sent it
    call: Callable[[], Any] | None = None  # applies the delta, or what is new of it
    future: Future[Any] = field(default_factory=Future)  # of its result
    _data: bytes = b""

    @property
    def data(self) -> bytes:
        """Its bytes for the journal, made when they are first asked for: never if it is refused."""
        if not self._data:
            self._data = delta_to_bytes(self.delta)
        return self._data

    def refuse(self, error: Exception) -> None:
        """Answer with an error, a copy where several deltas share it: raising adds a traceback.

        An error of ours goes without one: its frames would hold the whole batch.
        """
        if isinstance(error, ResourceError | StoppedError):
            cause, error = error.__cause__, type(error)(str(error))
            error.__cause__ = cause
        elif isinstance(error, EvergraphError):
            error = error.with_traceback(None)
        self.future.set_exception(error)

    def begin(self) -> bool:
        """Return whether it should be applied; from here on it cannot be cancelled."""
        future = self.future
        return not future.done() and (future.running() or future.set_running_or_notify_cancel())

    def run(self) -> None:
        """Call what was queued, and answer with what it returns or raises."""
        assert self.call is not None, "a delta is applied with others"
        try:
            self.future.set_result(self.call())
        except Exception as error:
            self.refuse(error)


class DeltaQueue:
    """Group commit: one caller at a time applies its own deltas and all others that wait.

    No caller waits for more deltas to arrive. One that finds the lock free leads: it applies its
    own deltas and all in the queue. Callers that arrive meanwhile wait, and the first of them leads
    next, with everything that has arrived. So there are as few commits as the disk allows. Deltas
    that ``serve`` applies are taken in rounds, in which no caller has more than one large one, and
    the small ones are answered before the large ones begin.
    A call has its turn between batches: what it finds is what all before it have led to.

    lock: held while deltas are applied; a caller that holds it already is served at once. take:
    applies deltas, and answers each of them.

    >>> def take(waiting):
    ...     for queued in waiting:
    ...         queued.future.set_result(DeltaResult(seq=1))
    >>> DeltaQueue(threading.RLock(), take).submit([Delta()])[0].seq
    1
    """

    def __init__(
        self, lock: threading.RLock, take: Callable[[Sequence[QueuedDelta]], None]
    ) -> None:
        self._lock, self._take = lock, take
        self._waiting: list[QueuedDelta] = []
        self._changed = threading.Condition()  # of the queue, and of who leads
        self._led = False  # whether a caller has the lock, or is next to have it
        self._serving = False  # whether a call may be running, whose own delta comes alone

    def __len__(self) -> int:
        """How many deltas are in the queue."""
        return len(self._waiting)

    def offer(
        self, delta: Delta, caller: str = "", call: Callable[[], Any] | None = None
    ) -> Future[Any]:
        """Queue a delta, or a call in its place, until ``serve``; it may be cancelled."""
        waiting = QueuedDelta(delta, caller, call=call)
        with self._changed:
            self._waiting.append(waiting)
        return waiting.future

    def serve(self) -> None:
        """Apply everything in the queue, and what arrives meanwhile."""
        while self._waiting:
            with self._lock:
                self._lead((), in_rounds=True)

    def submit(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Queue deltas, and return the result or error of each once all are answered."""
        mine = [QueuedDelta(delta) for delta in deltas]
        with self._changed:
            self._waiting += mine
        try:
            self._get_served(mine)
        except BaseException:  # an interrupt: nobody may begin with these any more
            with self._changed:
                self._waiting = [queued for queued in self._waiting if queued not in mine]
            raise
        answers: list[DeltaResult | Exception] = []
        for queued in mine:
            error = queued.future.exception()
            assert error is None or isinstance(error, Exception), "no answer"
            answers.append(queued.future.result() if error is None else error)
        return answers

    def _get_served(self, mine: Sequence[QueuedDelta]) -> None:
        # A thread that holds the lock must not wait for the leader, which waits for the lock.
        if self._lock.acquire(blocking=False):
            try:
                self._lead(mine)
            finally:
                self._lock.release()
            return

        def served() -> bool:
            return all(queued.future.done() for queued in mine)

        with self._changed:
            self._changed.wait_for(lambda: not self._led or served())
            if served():
                return
            self._led = True
        try:
            with self._lock:
                self._lead(mine)
        finally:
            with self._changed:
                self._led = False
                self._changed.notify_all()

    def _lead(self, mine: Sequence[QueuedDelta], *, in_rounds: bool = False) -> None:
        """Apply the queue, the caller's own deltas first: an upsert has compared them already."""
        with self._changed:
            own = set(mine)
            others = [queued for queued in self._waiting if queued not in own]
            large: list[QueuedDelta] = []
            later: list[QueuedDelta] = []
            if self._serving:
                others, later = [], others
            elif in_rounds:
                others, large, later = one_round(others)
            self._waiting = later
        was_serving = self._serving
        self._serving = was_serving or in_rounds
        try:
            for group in ((*mine, *others), large):
                self._apply([queued for queued in group if queued.begin()])
        finally:
            self._serving = was_serving
            with self._changed:  # after an interrupt, deltas without an answer go back to the queue
                unanswered = [queued for queued in others + large if not queued.future.done()]
                self._waiting = unanswered + self._waiting
                self._changed.notify_all()

    def _apply(self, waiting: Sequence[QueuedDelta]) -> None:
        for are_calls, group in groupby(waiting, key=lambda queued: queued.call is not None):
            if are_calls:
                for queued in group:
                    queued.run()
            else:
                self._take([*group])


def one_round(
    queue: Sequence[QueuedDelta],
) -> tuple[list[QueuedDelta], list[QueuedDelta], list[QueuedDelta]]:
    """Return what is applied next, what after that, and what is left for later, in order.

    Of every caller it is what came first, up to ``ROUND_ITEMS`` nodes and edges but at least one delta;
    callers with more than that come second.
    """
    sizes: Counter[str] = Counter()
    now: list[QueuedDelta] = []
    later: list[QueuedDelta] = []
    for queued in queue:
        (now if sizes[queued.caller] < ROUND_ITEMS else later).append(queued)
        sizes[queued.caller] += max(queued.delta.size, 1)
    small = [queued for queued in now if sizes[queued.caller] < ROUND_ITEMS]
    large = [queued for queued in now if sizes[queued.caller] >= ROUND_ITEMS]
    return small, large, later


class QueuedBatch:
    """A batch: the longest run of queued deltas that can be applied together.

    Each delta is checked against the learner and the deltas before it. One that is rejected, or was
    applied before by its key, is answered at once. left: the queue, from which is taken; columns:
    of the folder; seq: number of the last delta before the batch.
    """

    def __init__(
        self,
        left: deque[QueuedDelta],
        learner: OnlineLearner,
        journal: Journal,
        columns: KeptColumns,
        seq: int,
    ) -> None:
        self.entries: list[JournalEntry] = []  # of the batch, for the journal
        # All that are to be answered, with the index of the delta whose result they get; those
        # that only repeat a key of the batch are among them.
        self.waiting: list[tuple[QueuedDelta, int]] = []
        self._first, self._learner, self._journal = seq + 1, learner, journal
        self._columns = columns
        self._batch = Batch()
        self.deltas = self._batch.deltas  # the same as ``entries``, checked
        while left and not self._batch.full:
            try:
                if not self._takes(left[0]):
                    return
            except Exception as error:
                if is_of_disk(error):  # not the fault of the delta
                    raise
                left[0].refuse(error)
            left.popleft()

    def _takes(self, waiting: QueuedDelta) -> bool:
        """Answer a delta with a known key, or add it to the batch; False if it must wait."""
        key, index = waiting.delta.key, len(self.entries)
        if waiting.delta.is_sparse:  # as bytes it has the columns that the learner keeps
            if index:
                return False
            waiting.delta = self._learner.fitting(waiting.delta)
        if key is not None:
            for same in (entry for entry in self.entries if entry.key == key):
                if digest_of(waiting.data) != digest_of(same.data):
                    raise key_reused(key, same.seq)
                self.waiting.append((waiting, same.seq - self._first))
                return True
            if (known := self._journal.keys.known(key, waiting.data)) is not None:
                assert known[1] is not None, "results are written before snapshots"
                waiting.future.set_result(DeltaResult(**json.loads(known[1])))
                return True
        # A table waits until the first nodes, which fix how columns are read, have been applied.
        begins = waiting.delta.scheme is not None and not self._learner.status().features
        if index and (begins or Batch.is_alone(waiting.delta)):
            return False
        self._columns.check(waiting.delta, self._learner)
        checked = self._learner.check(waiting.delta, self._batch.ahead)
        data = waiting.data
        if not self._batch.takes(checked):
            return False
        # The checked parts equal those read back from its bytes, so a recovery applies the same.
        self._batch.add(checked)
        self.entries.append(JournalEntry(self._first + index, self._first, key, data))
        self.waiting.append((waiting, index))
        return True


def is_of_disk(error: Exception) -> bool:
    """Whether an error means that the journal could not be read."""
    return isinstance(error, DataError) and isinstance(error.__cause__, sqlite3.Error)
