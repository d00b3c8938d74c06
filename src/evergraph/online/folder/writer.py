"""The one process that takes deltas into a learner's folder."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evergraph.core.errors import EvergraphError, StoppedError
from evergraph.online.alarms.alarm import AlarmNews, tell, warn
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.entries import JournalEntry, named
from evergraph.online.folder.gathering import Gathered, is_of_disk, own
from evergraph.online.folder.recovery import note_results, set_aside
from evergraph.online.folder.unapplied import Unapplied
from evergraph.online.folder.waiting_deltas import Waiting, WaitingDeltas
from evergraph.online.folder.writable import WritableFolder


class FolderWriter(WritableFolder):
    """Takes deltas in: first the journal, then the learner; snapshots follow in the background.

    Args: as those of ``WritableFolder``.
    """

    def __init__(self, path: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(path, *args, **kwargs)
        self._waiting = WaitingDeltas(self.lock, self._take_all)

    def submit(self, delta: Delta) -> DeltaResult:
        """Take a delta in; when this returns, the disk has it and the learner knows it."""
        (answer,) = self.submit_many([delta])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit_many(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Take deltas in, in order, and return what became of each; one is refused by itself.

        Those that can be applied together, and those that other threads wait for, are written with
        one wait for the disk.
        """
        return self._waiting.submit(deltas)

    def _take_all(self, waiting: Sequence[Waiting]) -> None:
        """Take deltas in, batch by batch; the lock is held."""
        left = deque(each for each in waiting if each.answer is None)
        try:
            while left:
                self._check_taking()
                began = time.thread_time()
                gathered = Gathered(self.learner, self._journal, self.seq)
                gathered.gather(left)
                self._take(gathered, began)
        except Exception as error:  # what stops one stops all
            said = self._stop("what waits", error) if is_of_disk(error) else error
            for each in waiting:
                each.answer = each.answer or own(said)

    def _take(self, gathered: Gathered, began: float) -> None:
        """Write a batch down and apply it; what is applied is what a recovery would."""
        if not gathered.waiting:
            return
        entries, news = gathered.entries(), AlarmNews(after=self.seq)
        failure = self._write(entries)
        results = None
        if failure is None:
            results, failure = self._apply(entries, gathered.deltas)
        if results is None:
            self._refuse(gathered, failure)
            return
        self._taken(entries, time.thread_time() - began)
        tell(news.of(self.learner.alarms()), warn)  # now that the disk has it
        gathered.answer(results)

    def _refuse(self, gathered: Gathered, failure: Exception | None) -> None:
        """Say why a batch was not taken in; where one delta is at fault, find out which."""
        if failure is not None:
            gathered.refuse(failure)
            return
        for each in gathered.everyone:  # the batch was taken back
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
        """Have the learner apply what is written; where it cannot, set that aside and renew it."""
        try:
            results = self.learner.apply_batch(deltas)
            note_results(self._journal, deltas, results)
            self.seq = entries[-1].seq
            return results, None
        except Exception as error:
            failed = Unapplied.of(entries, error)
        except BaseException as error:  # an interrupt too may leave a delta half applied
            self._stop(named(entries), error)
            raise
        # Not while the error is held: its frames hold what applying needed so much memory for.
        return None, self._renew(entries, failed)

    def _renew(self, entries: Sequence[JournalEntry], failed: Unapplied) -> Exception | None:
        """Set aside what could not be applied, and go on with the learner as it was before.

        Several deltas are taken back instead, to be tried one by one; nothing is returned then.
        """
        again = len(entries) > 1
        try:
            if again:
                self._journal.aside.take_back(entries[0].seq)
            else:
                set_aside(self._journal, entries[0].seq, named(entries), failed.why)
            self._renew_learner()
        except Exception as error:
            return self._stop(named(entries), error)
        return None if again else failed.refusal(self.path)

    def _taken(self, entries: Sequence[JournalEntry], seconds: float) -> None:
        self._acknowledged.note(self.seq)
        self._keys += sum(entry.key is not None for entry in entries)
        self._journal.costs.note(entries[0].seq, seconds)
        size = sum(len(entry.data) for entry in entries)
        self._compactor.count(size, deltas=len(entries), seconds=seconds)

    def _stop(self, deltas: str, error: BaseException) -> StoppedError:
        """Take no more deltas for now; return what to say."""
        why = (
            f"{self.path}: {deltas} could not be taken in whole "
            f"({type(error).__name__}: {error}): no more are taken until the folder is well again, "
            "which is tried now and then"
        )
        self._healing.stop(why)
        stopped = StoppedError(why)
        stopped.__cause__ = error
        return stopped
