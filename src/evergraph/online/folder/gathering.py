"""Which of the deltas that wait are taken in together."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence

from evergraph.core.errors import DataError, ResourceError, StoppedError
from evergraph.online.batch import Batch
from evergraph.online.checking import CheckedDelta
from evergraph.online.codecs.delta_bytes import digest_of, is_same
from evergraph.online.delta import DeltaResult
from evergraph.online.folder.entries import JournalEntry, batch_of
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.journal_keys import key_reused
from evergraph.online.folder.recovery import result_of
from evergraph.online.folder.state_machine import StateMachine
from evergraph.online.folder.waiting_deltas import Waiting


class Gathered:
    """The first of the deltas that wait which can be taken in together.

    Each is checked against what the learner knows and what comes before it in the batch. One that
    is refused is answered by itself, and so is one that was taken in before, by its key.

    Args:
        learner: knows what came before.
        journal: knows the keys.
        seq: how many deltas there were before.
    """

    def __init__(self, learner: StateMachine, journal: Journal, seq: int) -> None:
        self.seq = seq
        self.waiting: list[Waiting] = []
        self._learner = learner
        self._journal = journal
        self._batch = Batch()
        self._keys: dict[str, int] = {}  # of these, and the place of each
        self._again: list[tuple[Waiting, int]] = []  # the same key once more, and that place

    @property
    def deltas(self) -> list[CheckedDelta]:
        """The deltas of the batch, checked."""
        return self._batch.deltas

    def gather(self, left: deque[Waiting]) -> None:
        """Take deltas from the left, as long as they fit into one batch."""
        while left and not self._batch.full:
            try:
                if not self._takes(left[0]):
                    return
            except Exception as error:
                if is_of_disk(error):  # not the fault of that delta
                    raise
                left[0].answer = error
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
                raise key_reused(key, self.seq + place + 1)
            self._again.append((waiting, place))
            return True
        known = self._journal.keys.known(key, waiting.data)
        if known is not None:
            assert known.result is not None, "results are written before snapshots"
            waiting.answer = result_of(known.result)
        return known is not None

    def entries(self) -> list[JournalEntry]:
        """Return the deltas as the journal takes them."""
        return batch_of(self.seq + 1, ((each.data, each.delta.key) for each in self.waiting))

    def answer(self, results: Sequence[DeltaResult]) -> None:
        """Tell everybody what was done."""
        for each, result in zip(self.waiting, results, strict=True):
            each.answer = result
        for each, place in self._again:
            each.answer = results[place]

    @property
    def everyone(self) -> list[Waiting]:
        """Who waits for an answer, in order; those that sent the same once more at the end."""
        return [*self.waiting, *(each for each, _ in self._again)]

    def refuse(self, error: Exception) -> None:
        """Tell everybody that nothing was done, each in an error of its own: it is raised."""
        for each in self.everyone:
            each.answer = own(error)


def is_of_disk(error: Exception) -> bool:
    """Whether the journal could not be read."""
    return isinstance(error, DataError) and isinstance(error.__cause__, sqlite3.Error)


def own(error: Exception) -> Exception:
    """Return an error as one of several callers is told: whoever raises it adds to it."""
    if not isinstance(error, ResourceError | StoppedError):
        return error
    again = type(error)(str(error))
    again.__cause__ = error.__cause__
    return again
