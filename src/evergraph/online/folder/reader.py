"""A reader of a learner's folder, which another process may be writing to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, acknowledged_in
from evergraph.online.folder.recovery import UnappliedError, open_journal, recover, replay
from evergraph.online.folder.snapshot import read_about, snapshots_in, taken_at
from evergraph.online.folder.status import FolderStatus, Progress
from evergraph.online.learner import OnlineLearner


class FolderReader:
    """The learner as of its last delta, without a lock and without writing anything.

    Args:
        path: the folder.
        make: returns a learner that has seen nothing.
        progress: told how far the recovery is.

    Attributes:
        on_change: called when the learner has changed or is another object, with the lock held.
    """

    def __init__(
        self, path: Path, make: Callable[[], OnlineLearner], *, progress: Progress | None = None
    ) -> None:
        self.path = path
        self.make = make
        self.lock = threading.RLock()
        self.on_change: Callable[[], None] | None = None
        self._seen: int | None = None  # the version of the journal that was read
        self._journal = open_journal(path, make, readonly=True)
        try:
            self._recover(progress)
        except BaseException:
            self._journal.close()
            raise

    def _recover(self, progress: Progress | None = None) -> None:
        """Recover; begin again where the writer went on to newer snapshots meanwhile."""
        while True:
            newest = self._newest()
            # How often deltas had been set aside when the journal was read.
            self._rewritten = len(self._journal.aside.rewritten(0))
            try:
                found = recover(self.path, self.make, self._journal, progress=progress)
            except DataError:
                if self._newest() == newest:  # nobody took the files away: they are damaged
                    raise
                continue
            if not self._journal.aside.rewritten(self._rewritten):
                break
        self.learner, self.seq, self.snapshot = found.learner, found.seq, found.snapshot
        self._seconds = found.seconds
        self._first = self._journal.first()
        self._short = found.seq < self._journal.last()

    def _newest(self) -> int:
        return max((number for number, _ in snapshots_in(self.path)), default=0)

    def refresh(self) -> int:
        """Apply the deltas that were written since, whole batches; return how many.

        Where nothing was written this costs microseconds, so it may be asked often.

        Where the writer has dropped some of them, the learner begins anew with a snapshot that
        holds them: it is another object then. So it is where the writer has set aside what was
        applied here, and where something cannot be applied that was not acknowledged.
        """
        with self.lock:
            before, version = self.seq, self._journal.version()
            outdated = self._journal.is_outdated()
            # What could not be applied here may have been acknowledged since.
            late = self._short and acknowledged_in(self.path / ACKNOWLEDGED_FILE) > before
            if version == self._seen and not late and not outdated:
                return 0
            if outdated:
                self._journal.close()
                self._journal = Journal(self._journal.path, readonly=True)
            # Asked for twice: before, so that what is gone is not built upon, and after, since the
            # writer may have set aside meanwhile what was just applied.
            other = outdated or self._is_set_aside() or not self._replay() or self._is_set_aside()
            if anew := other or self._is_packed():
                self._recover()
            # What came since it was asked for is seen the next time.
            self._seen = None if outdated else version
            if self.on_change is not None and (anew or self.seq != before):
                self.on_change()
            return max(self.seq - before, 0)

    def _replay(self) -> bool:
        """Apply what was written since; return whether that can be done from here."""
        before, began = self.seq, time.thread_time()
        try:
            self.seq = replay(self.learner, self._journal, before)
        except UnappliedError:
            return False
        except DataError:
            if self._newest() <= before:
                raise
            return False
        self._seconds += time.thread_time() - began
        return True

    def _is_packed(self) -> bool:
        """Whether the writer has let places of forgotten nodes go since: then they go here too."""
        first = self._journal.first()
        if first == self._first:  # else deltas were dropped, as they are then
            return False
        self._first, newest = first, self._newest()
        try:
            there = read_about(self.path / f"snapshot-{newest}") if newest else {}
        except DataError:  # it has just been replaced: it is looked at again when deltas go
            return False
        return int(there.get("base", 0)) > int(self.learner.about().get("base", 0))

    def _is_set_aside(self) -> bool:
        """Whether something that is known here has been set aside since the journal was read."""
        new = self._journal.aside.rewritten(self._rewritten)
        self._rewritten += len(new)
        return any(first <= self.seq for first in new)

    def status(self) -> FolderStatus:
        """Return how the folder looks from here."""
        with self.lock:
            return FolderStatus(
                path=str(self.path),
                readonly=True,
                seq=self.seq,
                snapshot=self.snapshot,
                deltas_since=self.seq - self.snapshot,
                bytes_since=self._journal.size_after(self.snapshot),
                keys=self._journal.keys.count(),
                replay_seconds=round(self._seconds, 3),
                snapshot_time=taken_at(self.path, self.snapshot),
                set_aside=self._journal.aside.count(),
            )

    def close(self) -> None:
        """Let go of the files."""
        with self.lock:
            self._journal.close()
