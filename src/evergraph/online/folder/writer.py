"""The one process that writes to a learner's folder."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from evergraph.core.errors import EvergraphError, StoppedError
from evergraph.online.alarms.alarm import AlarmNews, tell, warn
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.compactor import Compactor
from evergraph.online.folder.entries import JournalEntry, batches, check_entries, named
from evergraph.online.folder.gathering import Gathered, own
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    Acknowledged,
    FolderLock,
    make_folder,
    open_journal,
)
from evergraph.online.folder.recovery import delta_of, note_results, recover
from evergraph.online.folder.snapshot import SnapshotShelf, WrittenAside, remove_leftovers
from evergraph.online.folder.state_machine import StateMachine
from evergraph.online.folder.status import FolderStatus
from evergraph.online.folder.waiting_deltas import Waiting, WaitingDeltas
from evergraph.online.pieces import pieces_of


class FolderWriter:
    """Takes deltas in: first the journal, then the learner; snapshots follow in the background.

    Args:
        path: the folder; made if there is none.
        make: returns a learner that has seen nothing.
        snapshot_every, snapshot_bytes, retry: as in ``Compactor``.
        key_age: seconds that a key is kept for, at least.
        keys_kept: how many keys are kept however old they are.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[], StateMachine],
        *,
        snapshot_every: int,
        snapshot_bytes: int,
        retry: float,
        key_age: float,
        keys_kept: int,
    ) -> None:
        self.path = path
        self.key_age = key_age
        self.keys_kept = keys_kept
        self.lock = threading.RLock()
        self._waiting = WaitingDeltas(self.lock, self._take_all)
        self.stopped: str | None = None
        self.snapshot_error: str | None = None
        self._one_snapshot = threading.Lock()
        make_folder(path)
        self._folder_lock = FolderLock(path)
        try:
            self._recover(make)
        except BaseException:
            self._folder_lock.release()
            raise
        self._compactor = Compactor(
            self.compact, every=snapshot_every, size=snapshot_bytes, retry=retry
        )
        since = self._journal.size_after(self._shelf.newest)
        self._compactor.count(since, deltas=self.seq - self._shelf.newest)

    def _recover(self, make: Callable[[], StateMachine]) -> None:
        remove_leftovers(self.path)
        self._journal: Journal = open_journal(self.path, make)
        try:
            found = recover(self.path, make, self._journal)
            self._acknowledged = Acknowledged(self.path / ACKNOWLEDGED_FILE)
        except BaseException:
            self._journal.close()
            raise
        self.learner, self.seq = found.learner, found.seq
        self._keys = self._journal.keys.count()
        self._acknowledged.note(self.seq)
        self._shelf = SnapshotShelf(self.path, found.snapshot)

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

    def last_key(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, None where there is none."""
        with self.lock:
            return self._journal.keys.last(prefix)

    def _take_all(self, waiting: Sequence[Waiting]) -> None:
        """Take deltas in, batch by batch; the lock is held."""
        left = deque(each for each in waiting if each.answer is None)
        try:
            while left:
                self._check_taking()
                gathered = Gathered(self.learner, self._journal, self.seq)
                gathered.gather(left)
                self._take(gathered)
        except Exception as error:  # what stops one stops all
            for each in waiting:
                each.answer = each.answer or own(error)

    def _take(self, gathered: Gathered) -> None:
        """Write a batch down and apply it; what is applied is what a recovery would."""
        if not gathered.waiting:
            return
        entries, news = gathered.entries(), AlarmNews(after=self.seq)
        try:
            self._journal.write(entries)
            results = self.learner.apply_batch(gathered.deltas)
            note_results(self._journal, gathered.deltas, results)
            self.seq = entries[-1].seq
        except BaseException as error:  # an interrupt too may leave a delta half applied
            failure = self._failure(entries, error)
            if isinstance(failure, Exception):
                gathered.refuse(failure)
            if not isinstance(error, Exception):
                raise
            return
        self._taken(entries)
        tell(news.of(self.learner.alarms()), warn)  # now that the disk has it
        gathered.answer(results)

    def _taken(self, entries: Sequence[JournalEntry]) -> None:
        self._acknowledged.note(self.seq)
        self._keys += sum(entry.key is not None for entry in entries)
        self._compactor.count(sum(len(entry.data) for entry in entries), deltas=len(entries))

    def _failure(self, entries: Sequence[JournalEntry], error: BaseException) -> BaseException:
        """Return what to say; stop if deltas are, or may be, in the journal and not learned."""
        try:
            # After an error of SQLite other than a full disk, what the next one to open the file
            # will find is not certain.
            unsure = isinstance(error, sqlite3.Error) or self._journal.last() >= entries[0].seq
        except EvergraphError:
            unsure = True
        if not unsure:
            return error
        self.stopped = (
            f"{self.path}: {named(entries)} could not be taken in whole "
            f"({type(error).__name__}: {error}): no more are taken, open the folder again"
        )
        stopped = StoppedError(self.stopped)
        stopped.__cause__ = error
        return stopped

    def take_entries(self, entries: Sequence[JournalEntry]) -> int:
        """Take in what the journal of another folder holds next, as a recovery would.

        Returns how many deltas that were. Entries that are no whole batches, or do not go on where
        this folder ends, are refused.
        """
        with self.lock:
            self._check_taking()
            check_entries(entries, self.seq)
            deltas = [delta_of(entry) for entry in entries]
            if entries:
                self._follow(entries, deltas)
            return len(entries)

    def _follow(self, entries: Sequence[JournalEntry], deltas: Sequence[Delta]) -> None:
        try:
            self._journal.write(entries)
            for batch in batches(entries):
                start = batch[0].seq - entries[0].seq
                together = deltas[start : start + len(batch)]
                note_results(self._journal, together, self.learner.apply_batch(together))
                self.seq = batch[-1].seq
        except BaseException as error:
            failure = self._failure(entries, error)
            if isinstance(error, Exception):
                raise failure from error
            raise
        self._taken(entries)

    def _check_taking(self) -> None:
        if self.stopped is not None:
            raise StoppedError(self.stopped)

    def compact(self) -> int:
        """Take a snapshot of what is known now and drop what no recovery needs; return its number.

        Deltas wait while the state is written, not until the disk has it, and while a few rows at a
        time are dropped.
        """
        with self._one_snapshot:
            try:
                self._snapshot()
                self._drop()
            except Exception as error:
                self.snapshot_error = str(error)
                raise
            self.snapshot_error = None
            return self._shelf.newest

    def _snapshot(self) -> None:
        with self.lock:
            self._check_taking()  # a learner that stopped may hold half a delta
            if self.seq == self._shelf.newest:
                return
            written = self._written()
            deltas, size = self._compactor.restart()
        try:
            self._shelf.publish(written)
        except BaseException:
            self._compactor.count(size, deltas=deltas)
            raise

    def _written(self) -> WrittenAside:
        """Write the state aside as it is, a piece at a time: it is not held twice."""
        self._journal.keys.flush()  # a recovery will not apply these deltas to find what they did
        threads = getattr(self.learner, "threads", None)  # no part of the state, but it shows in it
        about = json.dumps(self.learner.about() | {"threads": threads}).encode()
        return self._shelf.write(self.seq, pieces_of(self.learner), about)

    def _drop(self) -> None:
        more = True
        while more:
            with self.lock:
                self._check_taking()
                more = self._journal.drop(self._shelf.safe_to_drop)
        more = True
        while more:
            with self.lock:
                self._check_taking()
                before = time.time() - self.key_age
                more = self._journal.keys.drop(before, keep=self.keys_kept)
        with self.lock:
            self._check_taking()
            self._keys = self._journal.keys.count()
            self._journal.tidy()

    def status(self) -> FolderStatus:
        """Return how the folder is doing."""
        return FolderStatus(
            path=str(self.path),
            readonly=False,
            seq=self.seq,
            snapshot=self._shelf.newest,
            deltas_since=self._compactor.deltas,
            bytes_since=self._compactor.bytes,
            keys=self._keys,
            stopped=self.stopped,
            snapshot_error=self.snapshot_error,
        )

    def close(self) -> None:
        """Finish what is under way and let others write."""
        self._compactor.close()
        with self._one_snapshot, self.lock:
            self.stopped = self.stopped or f"{self.path} is closed: open it again"
            self._journal.close()
            self._acknowledged.close()
            self._folder_lock.release()
