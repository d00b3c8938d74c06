"""Reader of a learner's folder, which follows the process that writes to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, FolderStatus, acknowledged_in
from evergraph.online.folder.recovery import Progress, UnappliedError, open_journal, recover, replay
from evergraph.online.folder.snapshot import snapshots_in, taken_at
from evergraph.online.learner import OnlineLearner


class FolderReader:
    """The learner of a folder, without locking or writing anything; see ``LearnerFolder``."""

    def __init__(
        self, path: Path, make: Callable[[], OnlineLearner], *, progress: Progress | None = None
    ) -> None:
        self.path, self.make = path, make
        self.lock = threading.RLock()
        self.on_change: Callable[[], object] = lambda: None
        self.on_stop: Callable[[], object] = lambda: None  # never called: there is nothing to stop
        self._seen: int | None = None  # version of the journal at the last refresh
        self._journal = open_journal(path, make, readonly=True)
        try:
            self._recover(progress)
        except BaseException:
            self._journal.close()
            raise

    def _recover(self, progress: Progress | None = None) -> None:
        """Recover; start over if the writer has replaced snapshots meanwhile."""
        while True:
            newest = self._newest()
            # How often the journal had been rewritten when it was read.
            self._rewritten = len(self._journal.aside.rewritten(0))
            try:
                found = recover(self.path, self.make, self._journal, progress=progress)
            except DataError:
                if self._newest() == newest:  # files were not replaced, so they are damaged
                    raise
                continue
            if not self._journal.aside.rewritten(self._rewritten):
                break
        self.learner, self.seq, self.snapshot = found.learner, found.seq, found.snapshot
        self._seconds = found.seconds
        self._short = found.seq < self._journal.last()

    def _newest(self) -> int:
        return max((number for number, _ in snapshots_in(self.path)), default=0)

    def refresh(self) -> int:
        """Apply whole batches that were written since; return how many deltas.

        It may be called often. The learner starts over from a snapshot, as a different object, if
        the writer has dropped some of them, or has set aside or purged deltas that were applied here.
        """
        with self.lock:
            before, version = self.seq, self._journal.version()
            outdated = self._journal.is_outdated()
            # A delta that could not be applied here may have been acknowledged since.
            late = self._short and acknowledged_in(self.path / ACKNOWLEDGED_FILE) > before
            if version == self._seen and not late and not outdated:
                return 0
            if outdated:
                self._journal.close()
                self._journal = Journal(self._journal.path, readonly=True)
            # Before, so as not to build on deltas that were set aside; and after, as the writer may
            # meanwhile have set aside what was just applied.
            anew = outdated or self._is_rewritten() or not self._replay() or self._is_rewritten()
            if anew:
                self._recover()
            # The version from before, so that later writes are seen by the next refresh.
            self._seen = None if outdated else version
            if anew or self.seq != before:
                self.on_change()
            return max(self.seq - before, 0)

    def _replay(self) -> bool:
        """Apply deltas written since; return False if the learner must be recovered instead."""
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

    def _is_rewritten(self) -> bool:
        """Whether a delta that was applied here was set aside, or purged, since the last check."""
        new = self._journal.aside.rewritten(self._rewritten)
        self._rewritten += len(new)
        return any(first <= self.seq for first in new)

    def status(self) -> FolderStatus:
        """Return the status of the folder, as this reader sees it."""
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
        """Close the files."""
        with self.lock:
            self._journal.close()
