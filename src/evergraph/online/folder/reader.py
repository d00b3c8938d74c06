"""A reader of a learner's folder, which another process may be writing to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.online.folder.markers import open_journal
from evergraph.online.folder.recovery import Recovered, recover, replay
from evergraph.online.folder.replaying import Progress
from evergraph.online.folder.snapshot import snapshots_in
from evergraph.online.folder.state_machine import StateMachine
from evergraph.online.folder.status import FolderStatus


class FolderReader:
    """The learner as of its last delta, without a lock and without writing anything.

    Args:
        path: the folder.
        make: returns a learner that has seen nothing.
        progress: told how far a recovery is.
    """

    def __init__(
        self, path: Path, make: Callable[[], StateMachine], progress: Progress | None = None
    ) -> None:
        self.path = path
        self.make = make
        self._progress = progress
        self.lock = threading.RLock()
        self._seen: int | None = None  # the version of the journal that was read
        self._journal = open_journal(path, make, readonly=True)
        try:
            self._take(self._recovered())
        except BaseException:
            self._journal.close()
            raise

    def _take(self, found: Recovered) -> None:
        self.learner, self.seq, self.snapshot = found.learner, found.seq, found.snapshot

    def _recovered(self) -> Recovered:
        """Recover; begin again where the writer went on to newer snapshots meanwhile."""
        while True:
            newest = self._newest()
            try:
                return recover(self.path, self.make, self._journal, self._progress)
            except DataError:
                if self._newest() == newest:  # nobody took the files away: they are damaged
                    raise

    def _newest(self) -> int:
        return max((number for number, _ in snapshots_in(self.path)), default=0)

    def refresh(self) -> int:
        """Apply the deltas that were written since, whole batches; return how many.

        Where nothing was written this costs microseconds, so it may be asked often.

        Where the writer has dropped some of them, the learner begins anew with a snapshot that
        holds them: it is another object then.
        """
        with self.lock:
            before, version = self.seq, self._journal.version()
            if version == self._seen:
                return 0
            try:
                self.seq = replay(self.learner, self._journal, before)
            except DataError:
                if self._newest() <= before:
                    raise
                self._take(self._recovered())
            self._seen = version  # what came since it was asked for is seen the next time
            return self.seq - before

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
            )

    def close(self) -> None:
        """Let go of the files."""
        with self.lock:
            self._journal.close()
