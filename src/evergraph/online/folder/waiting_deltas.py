"""Deltas that wait to be taken in, and who takes them in for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta, DeltaResult, in_columns


@dataclass(eq=False)
class Waiting:
    """A delta that somebody waits for.

    Attributes:
        delta: as it was given.
        data: as it is written; empty where it cannot be.
        answer: what became of it, None as long as nothing did.
    """

    delta: Delta
    data: bytes = b""
    answer: DeltaResult | Exception | None = None

    @classmethod
    def of(cls, delta: Delta) -> Waiting:
        """Return a delta that waits, or is refused because it cannot be written."""
        try:
            delta = in_columns(delta)  # once, for the bytes and for the check
            return cls(delta, delta_to_bytes(delta))
        except Exception as error:
            return cls(delta, answer=error)


@dataclass(eq=False)
class _Group:
    """What one caller waits for; woken: once it is done, or is to lead."""

    deltas: list[Waiting]
    woken: threading.Event = field(default_factory=threading.Event)
    done: bool = False

    @property
    def answered(self) -> bool:
        """Whether all deltas are answered."""
        return all(each.answer is not None for each in self.deltas)


class WaitingDeltas:
    """Callers that come while another is at work form a queue, and are served together.

    The first of the queue waits for the lock. When it has it, it takes in its own deltas and those
    of all behind it; these wait only to be told. So there are as few commits as the disk allows,
    and nobody waits for more deltas to come.

    Args:
        lock: held while deltas are taken in; who holds it already is served at once.
        take: takes deltas in, and puts an answer to each of them.

    >>> def take(waiting):
    ...     for each in waiting:
    ...         each.answer = DeltaResult(seq=1)
    >>> WaitingDeltas(threading.RLock(), take).submit([Delta()])[0].seq
    1
    """

    def __init__(self, lock: threading.RLock, take: Callable[[Sequence[Waiting]], None]) -> None:
        self._lock = lock
        self._take = take
        self._queue: list[_Group] = []
        self._mutex = threading.Lock()  # of the queue

    def submit(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Return what became of each delta, once it is on the disk and known, or refused."""
        group = _Group([Waiting.of(delta) for delta in deltas])
        with self._mutex:
            self._queue.append(group)
            first = self._queue[0] is group
        try:
            if self._is_to_lead(group, first):
                self._lead(group)
        except BaseException:
            self._leave(group)
            raise
        return [_answer(each) for each in group.deltas]

    def _is_to_lead(self, group: _Group, first: bool) -> bool:
        """Wait; return whether this caller holds the lock now and is to take deltas in."""
        # Not the first, and yet at once: somebody who holds the lock must not wait for others.
        if not first and not self._lock.acquire(blocking=False):
            group.woken.wait()
            if group.done:
                return False
            first = True
        if first:
            self._lock.acquire()
        return True

    def _lead(self, group: _Group) -> None:
        """Take in what waits: first the caller's own, as nothing may come between."""
        try:
            if group.done:  # by somebody who held the lock before
                return
            with self._mutex:
                others, self._queue = [each for each in self._queue if each is not group], []
            groups = [group, *others]
            try:
                self._take([each for one in groups for each in one.deltas])
            finally:
                self._wake(group, groups)
        finally:
            self._lock.release()

    def _wake(self, leader: _Group, groups: list[_Group]) -> None:
        """Tell callers that are answered; who is not, since this one was interrupted, leads."""
        unanswered = [each for each in groups if each is not leader and not each.answered]
        with self._mutex:
            self._queue = unanswered + self._queue
        for each in groups:
            if each.answered:
                each.done = True
                each.woken.set()
        if unanswered:
            unanswered[0].woken.set()

    def _leave(self, group: _Group) -> None:
        """Leave the queue, and have the next one lead in this one's place."""
        with self._mutex:
            self._queue = [each for each in self._queue if each is not group]
            if self._queue:
                self._queue[0].woken.set()


def _answer(waiting: Waiting) -> DeltaResult | Exception:
    assert waiting.answer is not None, "every delta is answered"
    return waiting.answer
