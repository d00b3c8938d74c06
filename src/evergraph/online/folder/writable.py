"""A learner's folder that is open for writing: its files, its snapshots, how it goes on."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evergraph.core.errors import DataError, ResourceError, StoppedError
from evergraph.online.delta import Label
from evergraph.online.folder.columns_file import COLUMNS_FILE, drop_names
from evergraph.online.folder.compactor import Compactor
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    Acknowledged,
    FolderLock,
    sync,
)
from evergraph.online.folder.recovery import (
    RENAMED,
    Recovered,
    make_folder,
    open_journal,
    recover,
)
from evergraph.online.folder.snapshot import (
    ASIDE,
    SnapshotShelf,
    WrittenAside,
    read_snapshot,
    remove_leftovers,
    remove_snapshot,
    snapshots_in,
    taken_at,
    write_aside,
)
from evergraph.online.folder.status import FolderStatus, Progress, Purged, folder_bytes
from evergraph.online.pieces import PackedState, pieces_of

if TYPE_CHECKING:
    from evergraph.online.learner import OnlineLearner

logger = logging.getLogger(__name__)


class WritableFolder:
    """A learner, its journal and its snapshots, in a folder that is open for writing.

    Args:
        path: the folder; made if there is none.
        make: returns a learner that has seen nothing.
        snapshot_every, snapshot_bytes, replay_seconds: when a snapshot is due; see ``Compactor``.
        close_seconds: closing takes a snapshot where a restart would take longer than that.
        retry: seconds after which a snapshot that failed is tried again.
        key_age: seconds that a key is kept for, at least.
        keys_kept: how many keys are kept however old they are.
        progress: told how far the recovery is.

    Attributes:
        learner: as the last delta left it; another object after a delta could not be applied.
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
        self.on_change: Callable[[], None] | None = None
        self.on_stop: Callable[[], None] | None = None
        self.snapshot_error: str | None = None
        self._snapshot_seconds: float | None = None
        self._make = make
        self._stopped: str | None = None
        self._stopped_since: float | None = None
        self._one_snapshot = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        make_folder(path)
        self._folder_lock = FolderLock(path)
        self._compactor = Compactor(
            self.compact,
            every=snapshot_every,
            size=snapshot_bytes,
            seconds=replay_seconds,
            retry=retry,
        )
        try:
            self._recover(progress)
        except BaseException:
            self._compactor.close()
            self._folder_lock.release()
            raise

    def _recover(self, progress: Progress | None) -> None:
        remove_leftovers(self.path)
        self._journal: Journal = open_journal(self.path, self._make)
        try:
            found = recover(self.path, self._make, self._journal, progress=progress)
            self._acknowledged = Acknowledged(self.path / ACKNOWLEDGED_FILE)
        except BaseException:
            self._journal.close()
            raise
        self._shelf = SnapshotShelf(self.path, found.snapshot)
        self._adopt(found)

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
        self._compactor.count(size, deltas=deltas, seconds=found.seconds)

    @property
    def stopped(self) -> str | None:
        """Why no more deltas are taken; None while they are."""
        return f"{self.path} is closed: open it again" if self._closed else self._stopped

    def stop(self, why: str) -> StoppedError:
        """Take no deltas from now on, since nobody can say what the disk holds; return the error.

        Whoever opens the folder again recovers what it holds.
        """
        self._stopped, self._stopped_since = why, time.time()
        logger.error("%s", why)
        if self.on_stop is not None:
            self.on_stop()
        return StoppedError(why)

    def changed(self) -> None:
        """Say that the learner is not what it was."""
        if self.on_change is not None:
            self.on_change()

    def _renew_learner(self) -> None:
        """Recover the learner anew, from the newest snapshot and the journal."""
        self._adopt(recover(self.path, self._make, self._journal, known=self.seq))
        self.changed()

    def _check_taking(self) -> None:
        if os.getpid() != self._process:  # the lock, SQLite's connection and threads stayed there
            raise StoppedError(
                f"{self.path} was opened by process {self._process}, and takes nothing from "
                f"process {os.getpid()}, which that one started: open it there"
            )
        if self.stopped is not None:
            raise StoppedError(self.stopped)

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
                self.snapshot_error = str(error)
                raise
            self.snapshot_error = None
            self._snapshot_seconds = round(time.monotonic() - began, 3)
            return self._shelf.newest

    def purge(self, *, keys: bool, names: bool) -> Purged:
        """Leave one snapshot of what is known now, and nothing older; see ``LearnerFolder``.

        Deltas wait until it is done. Where it has fewer places, the learner is read back from it.
        A process may be killed between any two steps: until the newest snapshot is on the disk and
        was read back, nothing that a recovery needs has gone.
        """
        with self._one_snapshot, self.lock:
            self._check_taking()
            self._journal.check_unread()
            before = folder_bytes(self.path)
            places = self._snapshot_for_good(self.learner.unused_names() if names else {})
            try:
                emptied = self._leave_nothing_older(keys=keys)
                if places:
                    self._renew_learner()
                else:
                    self.changed()  # names may be others
            except BaseException as error:  # the snapshot may be another one than the learner
                self.stop(
                    f"{self.path}: could not be purged whole ({error}): open the folder again, and "
                    "purge again"
                )
                raise
            if not emptied:
                raise ResourceError(
                    f"{self._journal.path}-wal: another process reads it since the purge began, so "
                    "what is to go is still in this file alone: end that process, and purge again"
                )
            return Purged(self.seq, before, folder_bytes(self.path), places)

    def _leave_nothing_older(self, *, keys: bool) -> bool:
        """Drop all but the snapshot of now; return whether nothing is left in the WAL either."""
        if self.seq:  # else there is nothing
            keep_only(self.path, self.seq)
            self._shelf.keep(self.seq)
        self._compactor.restart()
        emptied = self._journal.begin_anew(self.seq, keys=keys)
        self._acknowledged.note(self.seq)
        self._keys, self._set_aside = self._journal.keys.count(), self._journal.aside.count()
        self.snapshot_error = None
        return emptied

    def _snapshot_for_good(self, names: Mapping[Label, Label]) -> int:
        """Take a snapshot unless there is a whole one of now that has no place to spare.

        names: of classes, to be replaced. Return how many places of forgotten nodes have gone.
        """
        if names:
            return self._snapshot_renamed(names)
        there = not self.seq or is_whole(self.path, self.seq)
        packed = self.learner.packed() if self.seq and self._can_replace(there) else None
        if packed is not None or not there:
            self._shelf.publish(self._written(packed))
        return 0 if packed is None else packed.places

    def _can_replace(self, there: bool) -> bool:
        """Whether a process that is killed while it replaces the snapshot of now leaves another.

        there: whether there is one of now. A folder that holds nothing else, as one that was just
        restored, is packed with the first purge after a delta.
        """
        first = self._journal.first()
        older = [number for number, _ in snapshots_in(self.path) if first - 1 <= number < self.seq]
        return not there or first == 1 or any(is_whole(self.path, number) for number in older)

    def _snapshot_renamed(self, names: Mapping[Label, Label]) -> int:
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
            self._compactor.count(counted.bytes, deltas=counted.deltas, seconds=counted.seconds)
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
            replay_seconds=round(self._compactor.cost, 3),
            snapshot_time=taken_at(self.path, self._shelf.newest),
            snapshot_seconds=self._snapshot_seconds,
            stopped_since=self._stopped_since,
            set_aside=self._set_aside,
        )

    def close(self) -> None:
        """Finish what is under way and let others write; where it saves time, take a snapshot."""
        self._compactor.close()
        self._snapshot_at_the_end()
        with self._one_snapshot, self.lock:
            self._closed = True
            self._journal.close()
            self._acknowledged.close()
            self._folder_lock.release()

    def _snapshot_at_the_end(self) -> None:
        """Take a snapshot where a restart would take longer than that."""
        worth = max(self.close_seconds, self._compactor.took)
        if self.stopped is None and self._compactor.cost > worth:
            try:
                self.compact()
            except Exception as error:
                logger.warning("no snapshot could be taken at the end: %s", error)


def is_whole(folder: Path, seq: int) -> bool:
    """Whether a snapshot is there and what was written."""
    try:
        return read_snapshot(folder / f"snapshot-{seq}").seq == seq
    except DataError:
        return False


def keep_only(folder: Path, seq: int) -> None:
    """Remove all snapshots but one that is whole, and whatever lies aside; raise if any stays.

    Names of categories that an earlier version kept go too.
    """
    if not is_whole(folder, seq):
        raise ResourceError(
            f"{folder / f'snapshot-{seq}'}: was not found as it was written: nothing older is "
            "removed"
        )
    for number, path in snapshots_in(folder):
        if number != seq:
            remove_snapshot(path)
    remove_leftovers(folder)
    for name in (FORMAT_FILE, COLUMNS_FILE):
        for path in folder.glob(f".{name}-*"):  # what a killed process was writing
            path.unlink(missing_ok=True)
    drop_names(folder)
    sync(folder)
    left = [path for number, path in snapshots_in(folder) if number != seq]
    left += folder.glob(f"{ASIDE}*")
    if left:
        raise ResourceError(f"{left[0]}: could not be removed: remove it, and purge again")
