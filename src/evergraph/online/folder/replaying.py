"""How far a recovery has come, for those who wait for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evergraph.online.folder.entries import JournalEntry
from evergraph.online.folder.journal import Journal

TOLD = 0.5  # seconds between two calls
LOGGED = 5.0  # seconds between two lines of the log
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replaying:
    """How far the deltas since the newest snapshot have been applied.

    Attributes:
        done: how many of them.
        of: how many there are.
        seconds: what is left, going by what they took when they came; 0 at the end.
    """

    done: int
    of: int
    seconds: float


Progress = Callable[[Replaying], None]


class Replay:
    """Counts what a recovery applies, tells how far it has come, and adds up what it took.

    Args:
        journal: what is applied is read from it.
        seq: the delta that recovery begins after.
        progress: called at the begin, about twice a second, and at the end.

    Attributes:
        seconds: of the processor, that deltas took to apply so far.
    """

    def __init__(self, journal: Journal, seq: int, progress: Progress | None = None) -> None:
        self.seconds = 0.0
        self._journal = journal
        self._progress = progress or (lambda _: None)
        self._done, self._of = 0, max(journal.last() - seq, 0)
        self._costs = journal.costs.after(seq)
        # Seconds as noted; bytes where none are, in the journal of an earlier version.
        self._work = sum(self._costs.values()) or float(journal.size_after(seq))
        self._worked = 0.0
        self._began = self._told = self._logged = time.monotonic()
        self._clock = time.thread_time()
        self._folder = journal.path.parent
        if self._left() >= LOGGED:
            self._log("are to be applied again")
        self._tell()

    def count(self, batch: Sequence[JournalEntry]) -> None:
        """Count a batch that was applied."""
        took = time.thread_time() - self._clock
        self._clock += took
        self.seconds += took
        if not self._journal.readonly:
            self._journal.costs.note(batch[0].seq, took)
        self._done += len(batch)
        self._worked += (
            self._costs.get(batch[0].seq, 0.0)
            if self._costs
            else sum(len(entry.data) for entry in batch)
        )
        now = time.monotonic()
        if now - self._told >= TOLD:
            self._told = now
            self._tell()
        if now - self._logged >= LOGGED:
            self._logged = now
            self._log("are applied again")

    def end(self) -> None:
        """Tell that all is applied."""
        self._worked, self._of = self._work, self._done
        self._tell()
        passed = time.monotonic() - self._began
        if passed >= LOGGED:
            logger.info(
                "%s: %d deltas were applied again in %.0f s", self._folder, self._done, passed
            )

    def _log(self, what: str) -> None:
        done = f"{self._done} of {self._of}" if self._done else str(self._of)
        left = f"about {self._left():.0f} s are left"
        logger.info("%s: %s deltas %s, %s", self._folder, done, what, left)

    def _tell(self) -> None:
        self._progress(Replaying(self._done, self._of, round(self._left(), 1)))

    def _left(self) -> float:
        """Return the seconds that are left at the pace so far; before the first, as noted."""
        left = max(self._work - self._worked, 0.0)
        if self._worked:
            return left * (time.monotonic() - self._began) / self._worked
        return left if self._costs else 0.0
