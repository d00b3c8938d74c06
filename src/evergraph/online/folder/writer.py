"""The one process that takes deltas into a learner's folder."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError, EvergraphError, ResourceError, StoppedError
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal_rows import JournalEntry, named
from evergraph.online.folder.queue import DeltaQueue, Gathered, Waiting, is_of_disk
from evergraph.online.folder.recovery import note_results, reason, set_aside
from evergraph.online.folder.writable import WritableFolder
from evergraph.online.monitor import tell, warn

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unapplied:
    """Deltas that were written down and could not be applied.

    It does not hold the error itself: its frames hold what applying needed memory for.

    Attributes:
        deltas: which ones.
        why: what went wrong.
        kind: of what the senders are told.
    """

    deltas: str
    why: str
    kind: type[EvergraphError]

    @classmethod
    def of(cls, entries: Sequence[JournalEntry], error: Exception) -> Unapplied:
        """Return what is said after an error; one that nobody foresaw is logged whole.

        >>> Unapplied.of([JournalEntry(3, 3, None, b"")], MemoryError())
        Unapplied(deltas='delta 3', why='MemoryError', kind=<class '...ResourceError'>)
        """
        # torch says in its own words that memory did not suffice.
        lacking = isinstance(error, MemoryError | OSError | ResourceError)
        lacking = lacking or "DefaultCPUAllocator" in str(error)
        if not lacking and not isinstance(error, EvergraphError):
            logger.error("%s could not be applied", named(entries), exc_info=error)
        return cls(named(entries), reason(error), ResourceError if lacking else DataError)

    def refusal(self, path: Path) -> EvergraphError:
        """Return what the senders are told."""
        return self.kind(
            f"{path}: {self.deltas} could not be applied ({self.why}): set aside, and nothing was "
            "changed"
        )


class FolderWriter(WritableFolder):
    """Takes deltas in: first the journal, then the learner; snapshots follow in the background.

    Args: as those of ``WritableFolder``.

    Attributes:
        waiting: deltas are given to it, and those that wait are taken in together.
    """

    def __init__(self, path: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(path, *args, **kwargs)
        self.waiting = DeltaQueue(self.lock, self._take_all)

    def _take_all(self, waiting: Sequence[Waiting]) -> None:
        """Take deltas in, batch by batch; the lock is held."""
        left = deque(waiting)
        try:
            while left:
                self._check_taking()
                began = time.thread_time()
                gathered = Gathered(self.learner, self._journal, self.seq)
                gathered.gather(left)
                if gathered.waiting:
                    self._take(gathered, began)
        except Exception as error:  # what stops one stops all
            said = self._stop("what waits", error) if is_of_disk(error) else error
            for each in waiting:
                if not each.answered:
                    each.refuse(said)

    def _take(self, gathered: Gathered, began: float) -> None:
        """Write a batch down and apply it; what is applied is what a recovery would."""
        entries, before = gathered.entries, self.seq
        results = None
        failure = self._write(entries)
        if failure is None:
            results, failure = self._apply(entries, gathered.deltas)
        if results is not None:
            self._count(entries, time.thread_time() - began)
            tell(self.learner.alarms(), warn, after=before)  # now that the disk has it
            self.changed()
            gathered.answer(results)
            return
        for each in gathered.everyone:
            if failure is not None:
                each.refuse(failure)
            else:  # the batch was taken back: one of it is at fault, and is found out
                self._take_all([each])

    def _write(self, entries: Sequence[JournalEntry]) -> Exception | None:
        """Write a batch down; return what to say where nothing was, or may not have been."""
        try:
            self._journal.write(entries)
        except BaseException as error:
            stopped = self._stop(named(entries), error) if self._may_hold(entries, error) else None
            if not isinstance(error, Exception):
                raise
            return stopped or error
        return None

    def _may_hold(self, entries: Sequence[JournalEntry], error: BaseException) -> bool:
        """Whether deltas are, or may be, in the journal after an error."""
        try:
            # After an error of SQLite other than a full disk, what the next one to open the file
            # will find is not certain.
            return isinstance(error, sqlite3.Error) or self._journal.last() >= entries[0].seq
        except EvergraphError:
            return True

    def _apply(
        self, entries: Sequence[JournalEntry], deltas: Sequence[Delta]
    ) -> tuple[list[DeltaResult] | None, Exception | None]:
        """Have the learner apply what is written; where it cannot, set that aside and renew it.

        Returns what was done; or why nothing was; or neither, where deltas are to be tried one by
        one.
        """
        try:
            results = self.learner.apply_batch(deltas)
            note_results(self._journal, deltas, results)
            self.seq = entries[-1].seq
            return results, None
        except Exception as error:
            failed = Unapplied.of(entries, error)
        except BaseException as error:  # an interrupt too may leave a delta half applied
            self._apply_again(entries, error)
            raise
        # Not while the error is held: its frames hold what applying needed so much memory for.
        try:
            if len(entries) > 1:
                self._journal.aside.take_back(entries[0].seq)
            else:
                set_aside(self._journal, entries[0].seq, named(entries), failed.why)
            self._renew_learner()
        except Exception as error:
            return None, self._stop(named(entries), error)
        return None, None if len(entries) > 1 else failed.refusal(self.path)

    def _apply_again(self, entries: Sequence[JournalEntry], error: BaseException) -> None:
        """Recover the learner with what was written, which an interrupt has left half applied."""
        try:
            self._renew_learner()
        except BaseException:
            self._stop(named(entries), error)

    def _count(self, entries: Sequence[JournalEntry], seconds: float) -> None:
        self._acknowledged.note(self.seq)
        self._keys += sum(entry.key is not None for entry in entries)
        size = sum(len(entry.data) for entry in entries)
        self._compactor.count(size, deltas=len(entries), seconds=seconds)

    def _stop(self, deltas: str, error: BaseException) -> StoppedError:
        """Take no more deltas; return what to say."""
        stopped = self.stop(
            f"{self.path}: {deltas} could not be taken in whole ({type(error).__name__}: {error}): "
            "no more are taken, open the folder again"
        )
        stopped.__cause__ = error
        return stopped
