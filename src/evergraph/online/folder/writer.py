"""The one process that takes deltas into a learner's folder, snapshots them, and purges it.

The way of a delta: it waits in the queue (``DeltaQueue``), is checked together with those that wait
beside it (``Gathered``), written to the journal with them (``_write``), applied (``_apply``), noted
as acknowledged, and answered (``_take``). Snapshots follow in the background (``compact``).
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from evergraph.core.errors import DataError, EvergraphError, ResourceError, StoppedError
from evergraph.online.delta import Delta, DeltaResult, Label
from evergraph.online.folder.columns_file import COLUMNS_FILE, drop_names
from evergraph.online.folder.compactor import Compactor, Counted
from evergraph.online.folder.journal_rows import JournalEntry, named
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    Acknowledged,
    lock_folder,
    sync,
)
from evergraph.online.folder.queue import DeltaQueue, Gathered, Waiting, is_of_disk
from evergraph.online.folder.recovery import (
    RENAMED,
    Recovered,
    make_folder,
    note_results,
    open_journal,
    reason,
    recover,
    set_aside,
)
from evergraph.online.folder.snapshot import (
    SnapshotShelf,
    WrittenAside,
    is_whole,
    remove_leftovers,
    taken_at,
    write_aside,
)
from evergraph.online.folder.status import FolderStatus, Progress, Purged, folder_bytes
from evergraph.online.learner import OnlineLearner
from evergraph.online.monitor import tell, warn
from evergraph.online.pieces import PackedState, pieces_of

logger = logging.getLogger(__name__)


class FolderWriter:
    """A learner, its journal and its snapshots, in a folder that is open for writing.

    Args: as those of ``LearnerFolder.open``; key_age in seconds.

    Attributes:
        learner: as the last delta left it; another object after a delta could not be applied.
        seq: how many deltas it has been given.
        lock: held while the learner changes.
        waiting: deltas are given to it, and those that wait are taken in together.
        on_change: called when the learner has changed, or is another object, before anybody is
            told, with the lock held.
        on_stop: called when the folder has stopped: whoever wants to go on opens it again.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[], OnlineLearner],
        *,
        snapshot_every: int,
        snapshot_bytes: int,
        replay_seconds: float,
        close_seconds: float,
        retry: float,
        key_age: float,
        keys_kept: int,
        progress: Progress | None = None,
    ) -> None:
        self.path = path
        self.key_age = key_age
        self.keys_kept = keys_kept
        self.close_seconds = close_seconds
        self.lock = threading.RLock()
        self.waiting = DeltaQueue(self.lock, self._take_all)
        self.on_change: Callable[[], None] | None = None
        self.on_stop: Callable[[], None] | None = None
        self._make = make
        self._process = os.getpid()
        self._one_snapshot = threading.Lock()
        self._snapshot_error: str | None = None
        self._snapshot_seconds: float | None = None
        self._stopped: str | None = None
        self._stopped_since: float | None = None
        make_folder(path)
        with ExitStack() as opened:  # closed again where the learner cannot be recovered
            opened.enter_context(lock_folder(path))
            remove_leftovers(path)
            self._journal = open_journal(path, make)
            opened.callback(self._journal.close)
            found = recover(path, make, self._journal, progress=progress)
            self._acknowledged = Acknowledged(path / ACKNOWLEDGED_FILE)
            opened.callback(self._acknowledged.close)
            self._shelf = SnapshotShelf(path, found.snapshot)
            self._compactor = Compactor(
                self.compact,
                every=snapshot_every,
                size=snapshot_bytes,
                seconds=replay_seconds,
                retry=retry,
            )
            opened.callback(self._compactor.close)
            with self.lock:
                self._adopt(found)
            self._opened = opened.pop_all()

    def _adopt(self, found: Recovered) -> None:
        """Go on with a learner that was recovered."""
        self.learner, self.seq = found.learner, found.seq
        if self.seq > self._journal.last():  # killed after a renaming, before this
            self._journal.begin_anew(self.seq, keys=False)
        if found.snapshot < self._shelf.newest:  # a newer one has been found damaged
            self._shelf = SnapshotShelf(self.path, found.snapshot)
        self._keys, self._set_aside = self._journal.keys.count(), self._journal.aside.count()
        self._acknowledged.note(self.seq)
        size, deltas = self._journal.size_after(found.snapshot), self.seq - found.snapshot
        self._compactor.restart()
        self._compactor.took = max(self._compactor.took, found.reading)
        self._compactor.count(Counted(deltas, size, found.seconds))

    def _renew_learner(self) -> None:
        """Recover the learner anew, from the newest snapshot and the journal."""
        # What this process has acknowledged is known here, even if the file of it could not be
        # written: none of it may be set aside.
        self._adopt(recover(self.path, self._make, self._journal, known=self.seq))
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _stop(self, why: str, cause: BaseException) -> StoppedError:
        """Take no deltas from now on, since nobody can say what the disk holds; return the error.

        Whoever opens the folder again recovers what it holds.
        """
        self._stopped, self._stopped_since = f"{self.path}: {why}", time.time()
        logger.error("%s", self._stopped)
        if self.on_stop is not None:
            self.on_stop()
        stopped = StoppedError(self._stopped)
        stopped.__cause__ = cause
        return stopped

    def _stop_at(self, deltas: str, error: BaseException) -> StoppedError:
        said = f"{type(error).__name__}: {error}"
        return self._stop(
            f"{deltas} could not be taken in whole ({said}): no more are taken, open the folder "
            "again",
            error,
        )

    def _check_taking(self) -> None:
        if os.getpid() != self._process:  # the lock, SQLite's connection and threads stayed there
            raise StoppedError(
                f"{self.path} was opened by process {self._process}, and takes nothing from "
                f"process {os.getpid()}, which that one started: open it there"
            )
        if self._stopped is not None:
            raise StoppedError(self._stopped)

    def _take_all(self, waiting: Sequence[Waiting]) -> None:
        """Take deltas in, batch by batch; the lock is held."""
        left = deque(waiting)
        try:
            while left:
                self._check_taking()
                began = time.thread_time()
                batch = Gathered(self.learner, self._journal, self.seq)
                batch.gather(left)
                if batch.waiting:
                    self._take(batch, began)
        except Exception as error:  # what stops one stops all
            said = self._stop_at("what waits", error) if is_of_disk(error) else error
            for each in waiting:
                if not each.answered:
                    each.refuse(said)

    def _take(self, batch: Gathered, began: float) -> None:
        """Write a batch down, apply it, and answer who waits; what is applied a recovery would."""
        entries, before = batch.entries, self.seq
        try:
            self._write(entries)
            results = self._apply(entries, batch.deltas)
        except Exception as error:
            for each in batch.everyone:
                each.refuse(error)
            return
        if results is None:  # the batch was taken back: one of it is at fault, and is found out
            for each in batch.everyone:
                self._take_all([each])
            return
        # A delta is acknowledged once the disk has it and the learner knows it. The note comes
        # before anybody is told: what somebody may count on is never set aside.
        self._acknowledged.note(self.seq)
        self._keys += sum(entry.key is not None for entry in entries)
        size, seconds = sum(len(entry.data) for entry in entries), time.thread_time() - began
        self._compactor.count(Counted(len(entries), size, seconds))
        tell(self.learner.alarms(), warn, after=before)
        self._changed()
        batch.answer(results)

    def _write(self, entries: Sequence[JournalEntry]) -> None:
        """Write a batch down; where it may be in the journal after an error, stop the folder."""
        try:
            self._journal.write(entries)
        except BaseException as error:
            try:
                # After an error of SQLite other than a full disk, what the next one to open the
                # file will find is not certain.
                held = isinstance(error, sqlite3.Error) or self._journal.last() >= entries[0].seq
            except EvergraphError:
                held = True
            stopped = self._stop_at(named(entries), error) if held else None
            if stopped is not None and isinstance(error, Exception):
                raise stopped from error
            raise

    def _apply(
        self, entries: Sequence[JournalEntry], deltas: Sequence[Delta]
    ) -> list[DeltaResult] | None:
        """Have the learner apply what is written; where it cannot, set that aside and renew it.

        None where a batch of several was removed again: they are to be tried one by one.
        """
        try:
            results = self.learner.apply_batch(deltas)
            note_results(self._journal, deltas, results)
            self.seq = entries[-1].seq
            return results
        except Exception as error:
            why, refusal = reason(error), self._refusal(named(entries), error)
        except BaseException as error:  # an interrupt too may leave a delta half applied
            try:
                self._renew_learner()  # with what was written, which counts
            except BaseException:
                self._stop_at(named(entries), error)
            raise
        # Not while the error is held: its frames hold what applying needed so much memory for.
        try:
            if len(entries) > 1:
                self._journal.aside.take_back(entries[0].seq)
            else:
                set_aside(self._journal, entries[0].seq, named(entries), why)
            self._renew_learner()
        except Exception as error:
            raise self._stop_at(named(entries), error) from error
        if len(entries) > 1:
            return None
        raise refusal

    def _refusal(self, deltas: str, error: Exception) -> EvergraphError:
        """Return what senders are told of deltas that cannot be applied; log what none foresaw."""
        # torch says in its own words that memory did not suffice.
        lacking = isinstance(error, MemoryError | OSError | ResourceError)
        lacking = lacking or "DefaultCPUAllocator" in str(error)
        if not lacking and not isinstance(error, EvergraphError):
            logger.error("%s could not be applied", deltas, exc_info=error)
        return (ResourceError if lacking else DataError)(
            f"{self.path}: {deltas} could not be applied ({reason(error)}): set aside, and nothing "
            "was changed"
        )

    def compact(self) -> int:
        """Take a snapshot of what is known now and drop what no recovery needs; return its number.

        Deltas wait while the state is written, not until the disk has it, and while a few rows at a
        time are dropped.
        """
        with self._one_snapshot:
            began = time.monotonic()
            try:
                self._snapshot()
                self._drop()
            except Exception as error:
                self._snapshot_error = str(error)
                raise
            self._snapshot_error = None
            self._snapshot_seconds = round(time.monotonic() - began, 3)
            return self._shelf.newest

    def _snapshot(self) -> None:
        with self.lock:
            self._check_taking()  # a learner that stopped may hold half a delta
            if self.seq == self._shelf.newest:
                self._compactor.restart()
                return
            written = self._written()
            counted = self._compactor.restart()
        try:
            self._shelf.publish(written)
        except BaseException:
            self._compactor.count(counted)
            raise

    def _written(self, packed: PackedState | None = None, **more: int) -> WrittenAside:
        """Write the state aside, a piece at a time: it is not held twice.

        packed: what to write in its place.
        """
        self._journal.keys.flush()  # a recovery will not apply these deltas to find what they did
        threads = getattr(self.learner, "threads", None)  # no part of the state, but it shows in it
        told = self.learner.about() if packed is None else packed.about
        arrays = pieces_of(self.learner) if packed is None else packed.arrays
        about = json.dumps(told | {"threads": threads} | more).encode()
        return write_aside(self.path, self.seq, arrays, about)

    def _drop(self) -> None:
        """Drop deltas and keys that nobody needs, a few at a time: others take their turns.

        The names of both snapshots are on the disk by now, so a power cut brings no older state
        back that would miss these deltas.
        """
        steps: tuple[Callable[[], bool], ...] = (
            lambda: self._journal.drop(self._shelf.safe_to_drop),
            lambda: self._journal.keys.drop(time.time() - self.key_age, keep=self.keys_kept),
        )
        for step in steps:
            more = True
            while more:
                with self.lock:
                    self._check_taking()
                    more = step()
        with self.lock:
            self._check_taking()
            self._keys = self._journal.keys.count()
            self._journal.tidy()

    def purge(self, *, keys: bool, names: bool) -> Purged:
        """Leave one snapshot of what is known now, and nothing older; see ``LearnerFolder``.

        Deltas wait until it is done. Where it has fewer places, the learner is read back from it.

        It is done whole or not at all, although a process may be killed between any two steps.
        Nothing that a recovery needs goes before the snapshot of now is on the disk and was read
        back. From then on a recovery begins with that one, and finds after it no delta, or deltas
        that it holds already: what is left of the purge is done by the next.
        """
        with self._one_snapshot, self.lock:
            self._check_taking()
            self._journal.check_unread()
            before = folder_bytes(self.path)
            places = self._snapshot_for_good(self.learner.unused_names() if names else {})
            try:
                if self.seq:  # else there is nothing
                    self._remove_older()
                self._compactor.restart()
                emptied = self._journal.begin_anew(self.seq, keys=keys)
                self._acknowledged.note(self.seq)
                self._keys = self._journal.keys.count()
                self._set_aside = self._journal.aside.count()
                self._snapshot_error = None
                if places:
                    self._renew_learner()
                else:
                    self._changed()  # names may be others
            except BaseException as error:  # the snapshot may be another one than the learner
                self._stop(
                    f"could not be purged whole ({error}): open the folder again, and purge again",
                    error,
                )
                raise
            if not emptied:
                raise ResourceError(
                    f"{self._journal.path}-wal: another process reads it since the purge began, so "
                    "what is to go is still in this file alone: end that process, and purge again"
                )
            return Purged(self.seq, before, folder_bytes(self.path), places)

    def _snapshot_for_good(self, names: Mapping[Label, Label]) -> int:
        """Take a snapshot unless there is a whole one of now that has no place to spare.

        names: of classes, to be replaced. Return how many places of forgotten nodes have gone.
        """
        if not names:
            there = not self.seq or is_whole(self.path, self.seq)
            # Replacing the snapshot of now by one of the same number takes it away for a moment: it
            # is not done where a process that is killed then would leave none. So a folder that
            # holds nothing else, as one just restored, is packed by the first purge after a delta.
            first = self._journal.first()
            replaceable = not there or self._shelf.has_before(self.seq, first)
            packed = self.learner.packed() if self.seq and replaceable else None
            if packed is not None or not there:
                self._shelf.publish(self._written(packed))
            return 0 if packed is None else packed.places
        # Other names count as a change with a number of its own, which only the snapshot tells.
        self.learner.rename(names, seq=self.seq + 1)
        self.seq += 1
        try:
            packed = self.learner.packed()
            self._shelf.publish(self._written(packed, **{RENAMED: self.seq}))
        except BaseException:  # the journal knows nothing of it
            self.seq -= 1
            self.learner.rename({new: old for old, new in names.items()}, seq=self.seq)
            raise
        return 0 if packed is None else packed.places

    def _remove_older(self) -> None:
        """Leave no file but those of now; names of categories that earlier versions kept go too."""
        self._shelf.keep_only(self.seq)
        for name in (FORMAT_FILE, COLUMNS_FILE):
            for path in self.path.glob(f".{name}-*"):  # what a killed process was writing
                path.unlink(missing_ok=True)
        drop_names(self.path)
        sync(self.path)

    def status(self) -> FolderStatus:
        """Return how the folder is doing."""
        counted = self._compactor.counted
        return FolderStatus(
            path=str(self.path),
            readonly=False,
            seq=self.seq,
            snapshot=self._shelf.newest,
            deltas_since=counted.deltas,
            bytes_since=counted.bytes,
            keys=self._keys,
            stopped=self._stopped,
            snapshot_error=self._snapshot_error,
            replay_seconds=round(counted.seconds, 3),
            snapshot_time=taken_at(self.path, self._shelf.newest),
            snapshot_seconds=self._snapshot_seconds,
            stopped_since=self._stopped_since,
            set_aside=self._set_aside,
        )

    def close(self) -> None:
        """Finish what is under way and let others write; where it saves time, take a snapshot."""
        self._compactor.close()
        worth = max(self.close_seconds, self._compactor.took)  # it must save more than it takes
        if self._stopped is None and self._compactor.counted.seconds > worth:
            try:
                self.compact()
            except Exception as error:
                logger.warning("no snapshot could be taken at the end: %s", error)
        with self._one_snapshot, self.lock:
            self._stopped = f"{self.path} is closed: open it again"
            self._opened.close()
