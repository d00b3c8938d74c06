"""How a learner's folder is doing."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from evergraph.core.errors import EvergraphError, StoppedError
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.compactor import Compactor
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    Acknowledged,
    FolderLock,
    make_folder,
    open_journal,
)
from evergraph.online.folder.recovery import recover, result_of, result_text
from evergraph.online.folder.snapshot import SnapshotShelf, WrittenAside, remove_leftovers
from evergraph.online.folder.state_machine import StateMachine
from evergraph.online.pieces import pieces_of


@dataclass(frozen=True)
class FolderStatus:
    """What an operator wants to know of a folder.

    Attributes:
        path: the folder.
        readonly: whether it was opened for reading.
        seq: how many deltas the learner has been given.
        snapshot: how many deltas the newest snapshot holds.
        deltas_since: how many deltas came after it; a recovery applies these again.
        bytes_since: their size in the journal.
        stopped: why no more deltas are taken; None while they are.
        snapshot_error: why the last attempt at a snapshot failed; None if it did not.
    """

    path: str
    readonly: bool
    seq: int
    snapshot: int
    deltas_since: int
    bytes_since: int
    stopped: str | None = None
    snapshot_error: str | None = None


class FolderWriter:
    """Takes deltas in: first the journal, then the learner; snapshots follow in the background.

    Args:
        path: the folder; made if there is none.
        make: returns a learner that has seen nothing.
        snapshot_every, snapshot_bytes, retry: as in ``Compactor``.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[], StateMachine],
        *,
        snapshot_every: int,
        snapshot_bytes: int,
        retry: float,
    ) -> None:
        self.path = path
        self.lock = threading.RLock()
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
        self._acknowledged.note(self.seq)
        self._shelf = SnapshotShelf(self.path, found.snapshot)

    def submit(self, delta: Delta) -> DeltaResult:
        """Take a delta in; when this returns, the disk has it and the learner knows it.

        What is applied is what was written, read back: a recovery applies the same.
        """
        data = delta_to_bytes(delta)
        with self.lock:
            self._check_taking()
            known = None if delta.key is None else self._journal.known(delta.key, data)
            if known is not None:
                assert known.result is not None, "results are written before snapshots"
                return result_of(known.result)
            checked = self.learner.check(delta)
            return self._take(replace(checked, **vars(delta_from_bytes(data))), data)

    def last_key(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, None where there is none."""
        with self.lock:
            return self._journal.last_key(prefix)

    def _take(self, delta: Delta, data: bytes) -> DeltaResult:
        seq = self.seq + 1
        try:
            self._journal.append(seq, data, key=delta.key)
            applied = self.learner.apply(delta)
            if delta.key is not None:
                self._journal.keep_result(delta.key, result_text(applied))
            self.seq = seq
        except BaseException as error:  # an interrupt too may leave a delta half applied
            self._stop_unless_refused(seq, error)
            raise
        self._acknowledged.note(seq)
        self._compactor.count(len(data))
        return applied

    def _stop_unless_refused(self, seq: int, error: BaseException) -> None:
        """Stop if a delta is, or may be, in the journal and is not in the learner."""
        try:
            # After an error of SQLite other than a full disk, what the next one to open the file
            # will find is not certain.
            unsure = isinstance(error, sqlite3.Error) or self._journal.last() >= seq
        except EvergraphError:
            unsure = True
        if not unsure:
            return
        self.stopped = (
            f"{self.path}: delta {seq} could not be taken in whole "
            f"({type(error).__name__}: {error}): no more are taken, open the folder again"
        )
        if isinstance(error, Exception):
            raise StoppedError(self.stopped) from error

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
        self._journal.flush()  # a recovery will not apply these deltas to find what they did
        about = json.dumps(self.learner.about()).encode()
        return self._shelf.write(self.seq, pieces_of(self.learner), about)

    def _drop(self) -> None:
        more = True
        while more:
            with self.lock:
                self._check_taking()
                more = self._journal.drop(self._shelf.safe_to_drop)
        with self.lock:
            self._check_taking()
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
