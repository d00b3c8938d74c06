"""The one writer of a learner's folder: applies deltas, takes snapshots, and purges.

A delta waits in the queue (``DeltaQueue``), is checked together with others that wait
(``QueuedBatch``), written to the journal with them (``_write``), applied (``_apply``), recorded as
acknowledged, and answered (``_take``). Snapshots follow in the background (``compact``).
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from evergraph.core.errors import DataError, EvergraphError, ResourceError, StoppedError
from evergraph.core.safe_files import sync
from evergraph.online.arrays import PackedState
from evergraph.online.delta import DeltaResult
from evergraph.online.folder import markers, recovery, snapshot
from evergraph.online.folder.journal import JournalEntry, named
from evergraph.online.folder.markers import FolderStatus, KeptColumns, Purged, folder_bytes
from evergraph.online.folder.queue import DeltaQueue, QueuedBatch, QueuedDelta, is_of_disk
from evergraph.online.folder.recovery import Progress
from evergraph.online.folder.snapshot import JournalLoad
from evergraph.online.monitor import report, warn

logger = logging.getLogger(__name__)


class FolderWriter:
    """A learner, its journal and its snapshots, in a folder that is open for writing.

    Arguments are those of ``LearnerFolder``; key_age in seconds; columns: of the folder; most:
    after which a snapshot is due.
    """

    def __init__(
        self,
        columns: KeptColumns,
        make: recovery.Make,
        most: JournalLoad,
        *,
        close_seconds: float,
        retry: float,
        key_age: float,
        keys_kept: int,
        progress: Progress | None = None,
    ) -> None:
        self.columns, self.close_seconds = columns, close_seconds
        self.path = path = columns.folder
        self.key_age, self.keys_kept = key_age, keys_kept
        self.lock = threading.RLock()
        self.waiting = DeltaQueue(self.lock, self._take_all)
        self.on_change: Callable[[], object] = lambda: None
        self.on_stop: Callable[[], object] = lambda: None
        self._make = make
        self._process = os.getpid()
        self._one_snapshot = threading.Lock()
        self._snapshot_error: str | None = None
        self._snapshot_seconds: float | None = None
        self._stopped: str | None = None
        self._stopped_since: float | None = None
        markers.make_folder(path)
        with ExitStack() as opened:  # closed again if the learner cannot be recovered
            opened.enter_context(markers.lock_folder(path))
            snapshot.remove_leftovers(path)
            self._journal = recovery.open_journal(path, make)
            opened.callback(self._journal.close)
            recovered = recovery.recover(path, make, self._journal, progress=progress)
            self._acknowledged = markers.Acknowledged(path / markers.ACKNOWLEDGED_FILE)
            opened.callback(self._acknowledged.close)
            self._snapshots = snapshot.KeptSnapshots(path, recovered.snapshot)
            self._compactor = snapshot.Compactor(self.compact, most, retry=retry)
            opened.callback(self._compactor.close)
            with self.lock:
                self._adopt(recovered)
            self._opened = opened.pop_all()

    def _adopt(self, recovered: recovery.Recovered) -> None:
        self.learner, self.seq = recovered.learner, recovered.seq
        if recovered.snapshot < self._snapshots.newest:  # a newer one is damaged
            self._snapshots = snapshot.KeptSnapshots(self.path, recovered.snapshot)
        self._keys, self._set_aside = self._journal.keys.count(), self._journal.aside.count()
        self._acknowledged.note(self.seq)
        self._compactor.snapshot_seconds = max(self._compactor.snapshot_seconds, recovered.reading)
        size, deltas = self._journal.size_after(recovered.snapshot), self.seq - recovered.snapshot
        self._compactor.count_anew()
        self._compactor.count(JournalLoad(deltas, size, recovered.seconds))

    def _renew_learner(self) -> None:
        # This process knows what it has acknowledged, even if the file could not be written: none
        # of it may be set aside.
        self._adopt(recovery.recover(self.path, self._make, self._journal, known=self.seq))
        self.on_change()

    def _stop(self, why: str, cause: BaseException | None = None) -> StoppedError:
        """Stop all writes, as it is uncertain what is on disk until the folder is opened again."""
        self._stopped, self._stopped_since = f"{self.path}: {why}", time.time()
        logger.error("%s", self._stopped)
        self.on_stop()
        stopped = StoppedError(self._stopped)
        stopped.__cause__ = cause
        return stopped

    def _stop_at(self, deltas: str, error: BaseException) -> StoppedError:
        why = f"could not be written completely ({type(error).__name__}: {error})"
        return self._stop(f"{deltas} {why}: writes have stopped, open the folder again", error)

    def check_process(self) -> None:
        """Raise in a child of the process that opened the folder, before it waits for a lock."""
        if os.getpid() != self._process:  # a fork has neither the lock nor the threads
            raise StoppedError(
                f"{self.path} was opened by process {self._process} and cannot be used in process "
                f"{os.getpid()}, which that one started: open it there"
            )

    def _check_taking(self) -> None:
        self.check_process()
        self._check_there()
        if self._stopped is not None:
            raise StoppedError(self._stopped)

    def _check_there(self) -> None:
        """Stop all writes once the journal has left its path: nobody would find them there."""
        if self._stopped is None and self._journal.is_gone():
            self._stop(
                "the journal was removed, moved or replaced while it was in use: writes have "
                "stopped, and changes since the last backup may be lost; restore the folder"
            )

    def _take_all(self, waiting: Sequence[QueuedDelta]) -> None:
        """Apply deltas, batch by batch; the lock is held."""
        left = deque(waiting)
        try:
            while left:
                self._check_taking()
                began = time.thread_time()
                batch = QueuedBatch(left, self.learner, self._journal, self.columns, self.seq)
                if batch.entries:
                    self._take(batch, began)
        except Exception as error:  # concerns all deltas, not just one
            refusal = self._stop_at("queued deltas", error) if is_of_disk(error) else error
            for each in waiting:
                if not each.future.done():
                    each.refuse(refusal)

    def _take(self, batch: QueuedBatch, began: float) -> None:
        """Write a batch to the journal, apply it as a recovery would, and answer the senders."""
        entries, before = batch.entries, self.seq
        try:
            self.columns.keep(batch.deltas, self.learner)
            self._write(entries)
            results = self._apply(batch)
        except Exception as error:
            for each, _ in batch.waiting:
                each.refuse(error)
            return
        if results is None:  # the batch was withdrawn: its deltas are tried one by one
            for each, _ in batch.waiting:
                self._take_all([each])
            return
        # A delta is acknowledged once it is on disk and applied. The number is recorded before any
        # sender is answered, so that an acknowledged delta is never set aside.
        self._acknowledged.note(self.seq)
        self._keys += sum(entry.key is not None for entry in entries)
        size, seconds = sum(len(entry.data) for entry in entries), time.thread_time() - began
        self._compactor.count(JournalLoad(len(entries), size, seconds))
        report(self.learner.alarms(), warn, after=before)
        self.on_change()
        for each, index in batch.waiting:
            each.future.set_result(results[index])

    def _write(self, entries: Sequence[JournalEntry]) -> None:
        """Write a batch to the journal; stop writes if it may be there despite an error."""
        try:
            self._journal.write(entries)
        except BaseException as error:
            try:
                # After an SQLite error other than a full disk, it is uncertain what is in the file.
                may_be_written = (
                    isinstance(error, sqlite3.Error) or self._journal.last() >= entries[0].seq
                )
            except EvergraphError:
                may_be_written = True
            stop = self._stop_at(named(entries), error) if may_be_written else None
            if stop is not None and isinstance(error, Exception):
                raise stop from error
            raise
        self._check_taking()  # it may have been written to a file that has no name any more

    def _apply(self, batch: QueuedBatch) -> list[DeltaResult] | None:
        """Apply a written batch; None if one of several was withdrawn, to be tried one by one."""
        # If that fails, the batch is set aside, and the learner is recovered.
        entries, name = batch.entries, named(batch.entries)
        try:
            results = self.learner.apply_batch(batch.deltas)
            self._journal.keys.keep_results(batch.deltas, results)
            self.seq = entries[-1].seq
            return results
        except Exception as error:
            why = recovery.reason(error)
            # torch raises a RuntimeError when memory runs out.
            out_of_resources = isinstance(error, MemoryError | OSError | ResourceError)
            out_of_resources = out_of_resources or "DefaultCPUAllocator" in str(error)
            if not out_of_resources and not isinstance(error, EvergraphError):
                logger.error("%s could not be applied", name, exc_info=error)
        except BaseException as error:  # an interrupt may leave a delta half applied
            try:
                self._renew_learner()  # with the batch, which is in the journal
            except BaseException:
                self._stop_at(name, error)
            raise
        # Outside the except block: the error's frames hold the memory that applying needed.
        try:
            if len(entries) > 1:
                self._journal.aside.move(entries[0].seq, None)
            else:
                recovery.set_aside(self._journal, entries[0].seq, name, why)
            self._renew_learner()
        except Exception as error:
            raise self._stop_at(name, error) from error
        if len(entries) > 1:
            return None
        raise (ResourceError if out_of_resources else DataError)(
            f"{self.path}: {name} could not be applied ({why}): set aside, and nothing was changed"
        )

    def compact(self) -> int:
        """Take a snapshot and trim the journal; return the number of the snapshot."""
        # Deltas wait while the state is written, but not for the disk, and while rows are dropped.
        with self._one_snapshot:
            began = time.monotonic()
            try:
                with self.lock:
                    self._check_taking()  # after a stop the learner may hold half a delta
                    seq, aside = self.seq, None
                    if seq != self._snapshots.newest:
                        aside = self._write_aside()
                    counted = self._compactor.count_anew()
                if aside is not None:
                    try:
                        self._snapshots.publish(aside, seq)
                    except BaseException:
                        with self.lock:
                            self._compactor.count(counted)
                        raise
                self._drop()
            except Exception as error:
                self._snapshot_error = str(error)
                raise
            self._snapshot_error = None
            self._snapshot_seconds = round(time.monotonic() - began, 3)
            return self._snapshots.newest

    def _write_aside(self, packed: PackedState | None = None) -> Path:
        """Write the state of this moment, or a packed one, for a snapshot; the lock is held."""
        self._journal.keys.flush()  # a recovery will no longer recompute these results
        threads = getattr(self.learner, "threads", None)  # the last digits depend on it
        about = self.learner.about() if packed is None else packed.about
        arrays = self.learner.state() if packed is None else packed.arrays
        return snapshot.write_aside(self.path, self.seq, arrays, about | {"threads": threads})

    def _drop(self) -> None:
        """Drop deltas and keys that are no longer needed."""
        # Both snapshots are on disk by now, so a power cut cannot bring back an older state that
        # would need these deltas.
        with self.lock:
            self._check_taking()
            self._journal.drop(self._snapshots.safe_to_drop)
            self._journal.keys.drop(time.time() - self.key_age, keep=self.keys_kept)
            self._keys = self._journal.keys.count()
            self._journal.tidy()

    def purge(self, *, keys: bool) -> Purged:
        """Keep one snapshot of the current state, and nothing older; see ``LearnerFolder``.

        The process may be killed between any two steps: nothing that a recovery needs is removed
        before the new snapshot is on disk and was read back. The next purge completes what is left.
        """
        with self._one_snapshot, self.lock:
            self._check_taking()
            self._journal.check_unread()
            before = folder_bytes(self.path)
            packed = self._snapshot_for_good()
            try:
                if self.seq:
                    self._snapshots.keep_only(self.seq)
                    for name in (markers.FORMAT_FILE, markers.COLUMNS_FILE):
                        for path in self.path.glob(f".{name}-*"):  # left by a killed process
                            path.unlink(missing_ok=True)
                    sync(self.path)
                self._compactor.count_anew()
                emptied = self._journal.begin_anew(self.seq, keys=keys)
                self._acknowledged.note(self.seq)
                self._keys, self._set_aside = self._journal.keys.count(), 0
                self._snapshot_error = None
                if packed is not None:
                    self._renew_learner()
            except BaseException as error:  # snapshot and learner may differ now
                why = f"the purge is incomplete ({error}): open the folder again, and purge again"
                self._stop(why, error)
                raise
            if not emptied:
                raise ResourceError(
                    f"{self._journal.path}-wal: another process has read it since the purge began, "
                    "so it still holds erased data: end that process, and purge again"
                )
            places = 0 if packed is None else packed.places
            return Purged(self.seq, before, folder_bytes(self.path), places)

    def _snapshot_for_good(self) -> PackedState | None:
        """Take a packed snapshot unless there is one; return it if something was dropped."""
        packed: PackedState | None = None
        exists = not self.seq or snapshot.is_whole(self.path, self.seq)
        # Replacing a snapshot by one of the same number removes it for a moment. That is not done
        # if a process killed then would leave none: a folder that holds nothing else, such as one
        # just restored, is packed by the first purge after a delta.
        if self.seq and (not exists or self._snapshots.has_before(self.seq, self._journal.first())):
            packed = self.learner.packed()
        if packed is not None or not exists:
            self._snapshots.publish(self._write_aside(packed), self.seq)
        return packed

    def status(self) -> FolderStatus:
        """Return the status of the folder."""
        self._check_there()
        counted = self._compactor.counted
        return FolderStatus(
            path=str(self.path),
            readonly=False,
            seq=self.seq,
            snapshot=self._snapshots.newest,
            deltas_since=counted.deltas,
            bytes_since=counted.bytes,
            keys=self._keys,
            stopped=self._stopped,
            snapshot_error=self._snapshot_error,
            replay_seconds=round(counted.seconds, 3),
            snapshot_time=snapshot.taken_at(self.path, self._snapshots.newest),
            snapshot_seconds=self._snapshot_seconds,
            stopped_since=self._stopped_since,
            set_aside=self._set_aside,
        )

    def close(self) -> None:
        """Finish and release the lock, after a snapshot if that shortens the next start."""
        self._compactor.close()
        self._check_there()
        # It must save more time than it takes.
        least_saved = max(self.close_seconds, self._compactor.snapshot_seconds)
        if self._stopped is None and self._compactor.counted.seconds > least_saved:
            try:
                self.compact()
            except Exception as error:
                logger.warning("the snapshot on closing failed: %s", error)
        with self._one_snapshot, self.lock:
            self._stopped = f"{self.path} is closed: open it again"
            self._opened.close()
