"""The one place where deltas wait: gathered, taken in together, and answered one by one."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from evergraph.core.errors import DataError, ResourceError, StoppedError
from evergraph.online.checking import CheckedDelta
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of, is_same
from evergraph.online.delta import Delta, DeltaResult, in_columns
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.journal_rows import JournalEntry, batch_of, key_reused
from evergraph.online.folder.recovery import result_of
from evergraph.online.intake import Batch
from evergraph.online.learner import OnlineLearner


@dataclass(eq=False)
class Waiting:
    """A delta that somebody waits for.

    Attributes:
        delta: as it was given; its edges in columns once it is encoded.
        data: as it is written; empty before it was encoded.
        future: who waits is answered through it.
        came: when it began to wait, by the monotonic clock.
    """

    delta: Delta
    data: bytes = b""
    future: Future[DeltaResult] = field(default_factory=Future)
    came: float = field(default_factory=time.monotonic)

    def encode(self) -> None:
        """Make its bytes; refuse it where it cannot be written."""
        try:
            self.delta = in_columns(self.delta)  # once, for the bytes and for the check
            self.data = delta_to_bytes(self.delta)
        except Exception as error:
            self.future.set_exception(error)

    def refuse(self, error: Exception) -> None:
        """Answer that nothing was done, in an error of its own: whoever raises it adds to it."""
        if isinstance(error, ResourceError | StoppedError):
            cause, error = error.__cause__, type(error)(str(error))
            error.__cause__ = cause
        self.future.set_exception(error)

    @property
    def answered(self) -> bool:
        """Whether it is known what became of it."""
        return self.future.done()

    def outcome(self) -> DeltaResult | Exception:
        """Return what became of it."""
        error = self.future.exception()
        assert error is None or isinstance(error, Exception), "an interrupt is no answer"
        return self.future.result() if error is None else error

    def begin(self) -> bool:
        """Whether it is to be taken in; from here on nobody can take it back."""
        if self.answered:
            return False
        if not self.future.running() and not self.future.set_running_or_notify_cancel():
            return False
        if not self.data:
            self.encode()
        return not self.answered


class DeltaQueue:
    """Deltas that wait to be taken in, and who takes them in for all.

    Nobody waits for more deltas to come: who finds nobody at work takes in its own deltas and all
    that wait. Who comes meanwhile waits, and the first of these goes on with all that came. So
    there are as few commits as the disk allows.

    Args:
        lock: held while deltas are taken in; who holds it already is served at once.
        take: takes deltas in, and answers each of them.

    >>> def take(waiting):
    ...     for each in waiting:
    ...         each.future.set_result(DeltaResult(seq=1))
    >>> DeltaQueue(threading.RLock(), take).submit([Delta()])[0].seq
    1
    """

    def __init__(self, lock: threading.RLock, take: Callable[[Sequence[Waiting]], None]) -> None:
        self._lock = lock
        self._take = take
        self._waiting: list[Waiting] = []
        self._changed = threading.Condition()  # of what waits, and of who leads
        self._led = False  # whether somebody has the lock, or is the next to have it

    def __len__(self) -> int:
        """How many deltas wait that nobody has begun with."""
        return len(self._waiting)

    @property
    def oldest(self) -> float | None:
        """When the first of those that wait came, by the monotonic clock."""
        with self._changed:
            return self._waiting[0].came if self._waiting else None

    def offer(self, delta: Delta) -> Future[DeltaResult]:
        """Have a delta wait until somebody calls ``serve``; it can be cancelled until then."""
        waiting = Waiting(delta)
        with self._changed:
            self._waiting.append(waiting)
        return waiting.future

    def serve(self) -> None:
        """Take in all that waits."""
        with self._lock:
            self._lead(())

    def submit(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Return what became of each delta, once it is on the disk and known, or refused."""
        mine = [Waiting(delta) for delta in deltas]
        for each in mine:
            each.encode()  # while another may be at work
        with self._changed:
            self._waiting += mine
        try:
            self._get_served(mine)
        except BaseException:  # an interrupt: nobody is to begin with these any more
            with self._changed:
                self._waiting = [each for each in self._waiting if each not in mine]
            raise
        return [each.outcome() for each in mine]

    def _get_served(self, mine: Sequence[Waiting]) -> None:
        # Who holds the lock already must not wait for the one who leads, and who waits for it.
        if self._lock.acquire(blocking=False):
            try:
                self._lead(mine)
            finally:
                self._lock.release()
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._led or _all_answered(mine))
            if _all_answered(mine):
                return
            self._led = True
        try:
            with self._lock:
                self._lead(mine)
        finally:
            with self._changed:
                self._led = False
                self._changed.notify_all()

    def _lead(self, mine: Sequence[Waiting]) -> None:
        """Take in what waits, first the caller's own: nothing may come between look and change."""
        with self._changed:
            own = set(mine)
            others, self._waiting = [each for each in self._waiting if each not in own], []
        try:
            self._take([each for each in (*mine, *others) if each.begin()])
        finally:
            with self._changed:  # who is not answered, since this one was interrupted, leads next
                self._waiting = [each for each in others if not each.answered] + self._waiting
                self._changed.notify_all()


def _all_answered(waiting: Sequence[Waiting]) -> bool:
    return all(each.answered for each in waiting)


class Gathered:
    """The first of the deltas that wait which can be taken in together.

    Each is checked against what the learner knows and what comes before it in the batch. One that
    is refused is answered by itself, and so is one that was taken in before, by its key.

    Args:
        learner: knows what came before.
        journal: knows the keys.
        seq: how many deltas there were before.

    Attributes:
        waiting: those of the batch, in order.
        again: those that sent the same key once more, and the place of the first.
    """

    def __init__(self, learner: OnlineLearner, journal: Journal, seq: int) -> None:
        self.waiting: list[Waiting] = []
        self.again: list[tuple[Waiting, int]] = []
        self._seq = seq
        self._learner = learner
        self._journal = journal
        self._batch = Batch()
        self._keys: dict[str, int] = {}  # of these, and the place of each

    @property
    def deltas(self) -> list[CheckedDelta]:
        """The deltas of the batch, checked."""
        return self._batch.deltas

    @property
    def entries(self) -> list[JournalEntry]:
        """The deltas as the journal takes them."""
        return batch_of(self._seq + 1, ((each.data, each.delta.key) for each in self.waiting))

    def gather(self, left: deque[Waiting]) -> None:
        """Take deltas from the left, as long as they fit into one batch."""
        while left and not self._batch.full:
            try:
                if not self._takes(left[0]):
                    return
            except Exception as error:
                if is_of_disk(error):  # not the fault of that delta
                    raise
                left[0].refuse(error)
            left.popleft()

    def _takes(self, waiting: Waiting) -> bool:
        """Answer a delta whose key is known, or put it into the batch; False where it must wait."""
        if self._knows(waiting):
            return True
        if self.waiting and Batch.is_alone(waiting.delta):
            return False
        checked = self._learner.check(waiting.delta, self._batch.ahead)
        if not self._batch.takes(checked):
            return False
        # Its parts are those that its bytes would be read back as: a recovery applies the same.
        self._batch.add(checked)
        if waiting.delta.key is not None:
            self._keys[waiting.delta.key] = len(self.waiting)
        self.waiting.append(waiting)
        return True

    def _knows(self, waiting: Waiting) -> bool:
        key = waiting.delta.key
        if key is None:
            return False
        if (place := self._keys.get(key)) is not None:
            if not is_same(waiting.data, digest_of(self.waiting[place].data)):
                raise key_reused(key, self._seq + place + 1)
            self.again.append((waiting, place))
            return True
        if (known := self._journal.keys.known(key, waiting.data)) is None:
            return False
        _, result = known
        assert result is not None, "results are written before snapshots"
        waiting.future.set_result(result_of(result))
        return True

    @property
    def everyone(self) -> list[Waiting]:
        """Who waits for an answer, in order; those that sent the same once more at the end."""
        return [*self.waiting, *(each for each, _ in self.again)]

    def answer(self, results: Sequence[DeltaResult]) -> None:
        """Tell everybody what was done."""
        for each, result in zip(self.waiting, results, strict=True):
            each.future.set_result(result)
        for each, place in self.again:
            each.future.set_result(results[place])


def is_of_disk(error: Exception) -> bool:
    """Whether the journal could not be read."""
    return isinstance(error, DataError) and isinstance(error.__cause__, sqlite3.Error)
