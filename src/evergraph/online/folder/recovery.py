"""Recovery of a learner from its folder: the newest intact snapshot, then the journal.

``FolderReader`` goes on with what another process writes to the journal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.core.errors import DataError, EvergraphError
from evergraph.online.codecs.delta_bytes import delta_from_bytes
from evergraph.online.delta import DeltaResult
from evergraph.online.folder import markers
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, JournalEntry, named
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    FolderStatus,
    KeptColumns,
)
from evergraph.online.folder.snapshot import STATE, read_snapshot, snapshots_in, taken_at
from evergraph.online.learner import OnlineLearner

REPORTED = 0.5  # seconds between two progress reports
logger = logging.getLogger(__name__)
Make = Callable[[], OnlineLearner]


@dataclass(frozen=True)
class Replaying:
    """Progress of a recovery."""

    done: int  # deltas replayed
    of: int  # deltas to replay
    seconds: float  # estimated time left; 0 before the first delta, and at the end


Progress = Callable[[Replaying], None]


def open_journal(path: Path, make: Make, *, readonly: bool = False) -> Journal:
    """Return the journal of a folder, whose parameters must match those of ``make``."""
    # The journal of a new folder is created before its format file, so that a folder with a format
    # file but no journal has lost it.
    stored = markers.stored_parameters(path)
    if stored is None and readonly:
        raise DataError(
            f"{path} holds no learner yet: there is no {FORMAT_FILE}; evergraph ingest creates one"
        )
    if stored is None:
        journal = Journal(path / JOURNAL_FILE)
        if journal.last():
            journal.close()
            raise DataError(
                f"{path / FORMAT_FILE}: is missing, but the journal holds deltas: restore the "
                "folder from a backup"
            )
        markers.store_parameters(path, make().parameters)
        return journal
    markers.check_parameters(path, stored, make().parameters)
    if not (path / JOURNAL_FILE).exists():
        raise DataError(f"{path / JOURNAL_FILE}: is missing: restore the folder from a backup")
    return Journal(path / JOURNAL_FILE, readonly=readonly)


@dataclass(frozen=True, eq=False)
class Recovered:
    """A recovered learner."""

    learner: OnlineLearner  # bit for bit as if it had never stopped
    seq: int  # how many deltas it has applied
    snapshot: int  # the number of the snapshot that recovery began with; 0 if there was none
    seconds: float  # processor time that the deltas after the snapshot took
    reading: float  # seconds that reading the snapshot took


class UnappliedError(DataError):
    """A batch of a journal cannot be applied; the learner may hold a part of it."""

    def __init__(self, path: Path, batch: Sequence[JournalEntry], why: str) -> None:
        self.first, self.name, self.why = batch[0].seq, named(batch), why
        super().__init__(
            f"{path}: {self.name} cannot be applied ({why}): try another version of evergraph, "
            f"leave it out with evergraph check {path.parent} --skip {self.first}, or restore the "
            "folder from a backup"
        )


def recover(
    folder: Path, make: Make, journal: Journal, *, known: int = 0, progress: Progress | None = None
) -> Recovered:
    """Return the learner of a folder.

    A damaged snapshot is skipped for the previous one, with a warning. A damaged journal raises an
    error: nothing else has its deltas. Those at the end that were not acknowledged and cannot be
    applied are set aside with a warning; a read-only process stops before them.

    known: number of a delta up to which all were acknowledged, whatever the files say.
    """
    # Read before the journal, which another process may extend meanwhile.
    acknowledged = max(markers.acknowledged_in(folder / ACKNOWLEDGED_FILE), known)
    recovered: Recovered | None = None
    until: int | None = None  # the last delta to apply
    while recovered is None:
        try:
            recovered = _recovered(folder, make, journal, acknowledged, until, progress)
        except UnappliedError as error:
            if not _is_unacknowledged(journal, error.first, acknowledged):
                raise
            until = error.first - 1
            if not journal.readonly:
                set_aside(journal, error.first, error.name, error.why)
    noted = max(acknowledged, *(number for number, _ in snapshots_in(folder)), 0)
    if journal.last() < noted:
        raise DataError(
            f"{journal.path}: ends with delta {journal.last()}, but {noted} were acknowledged: its "
            "end is damaged or its -wal file is missing, restore the folder from a backup"
        )
    return recovered


def set_aside(journal: Journal, first: int, name: str, why: str) -> None:
    """Set aside all deltas of a journal from ``first`` on, with a warning."""
    journal.aside.move(first, why)
    logger.warning(
        "%s: set aside %s, which could not be applied (%s) and was not acknowledged; "
        "'evergraph check %s' lists what was set aside",
        *(journal.path, name, why, journal.path.parent),
    )


def _is_unacknowledged(journal: Journal, first: int, acknowledged: int) -> bool:
    """Whether neither a batch nor anything after it was acknowledged."""
    # After a power cut the acknowledged number on disk may be too low. But a batch is written only
    # after the previous one was applied, so all but the last one had been.
    return first > acknowledged and first >= journal.last_written(acknowledged)


def _recovered(
    folder: Path,
    make: Make,
    journal: Journal,
    acknowledged: int,
    until: int | None,
    progress: Progress | None,
) -> Recovered:
    """Return the learner from the newest intact snapshot and the deltas since, up to ``until``."""
    reading_began = time.monotonic()
    damaged: list[DataError] = []
    learner, snapshot = restore_newest(folder, make, damaged=damaged)
    seq = snapshot
    for error in damaged:
        logger.warning("%s: using the previous snapshot", error)
    if not seq and journal.first() > 1:
        first_damage = f" ({damaged[0]})" if damaged else ""
        raise DataError(
            f"{folder}: there is no intact snapshot{first_damage}, and the journal begins with delta "
            f"{journal.first()}: restore the folder from a backup"
        )
    reading, replay_began = time.monotonic() - reading_began, time.thread_time()
    report = _reporter(journal, seq, progress)
    for batch in journal.batches_after(seq):
        if until is not None and batch[-1].seq > until:
            break
        # If the system kills the process for its memory, nothing can be caught. So the journal
        # records that an unacknowledged batch is being applied, until that has ended: one that was
        # being applied when the last process ended counts as one that cannot be applied.
        is_recorded = not journal.readonly and _is_unacknowledged(
            journal, batch[0].seq, acknowledged
        )
        if is_recorded and journal.aside.begin(batch[0].seq):
            why = "the process ended while it was applied, twice"
            raise UnappliedError(journal.path, batch, why)
        try:
            apply_entries(learner, journal, batch)
        except UnappliedError:
            is_recorded = False  # stays recorded until it is set aside
            raise
        finally:  # also after an interrupt, which is not the batch's fault
            if is_recorded:
                journal.aside.end()
        report(batch)
        seq = batch[-1].seq
    report(None)
    return Recovered(learner, seq, snapshot, time.thread_time() - replay_began, reading)


def _reporter(
    journal: Journal, seq: int, progress: Progress | None
) -> Callable[[Sequence[JournalEntry] | None], None]:
    """Return what reports progress after each batch, and, given None, at the end."""
    of, size, began = max(journal.last() - seq, 0), journal.size_after(seq), time.monotonic()
    done = replayed = 0
    reported = began

    def report(batch: Sequence[JournalEntry] | None) -> None:
        nonlocal done, replayed, reported
        done += len(batch or ())
        replayed += sum(len(entry.data) for entry in batch or ())
        now = time.monotonic()
        if progress is None or (batch and now - reported < REPORTED):
            return
        reported = now
        # By bytes, at the pace so far; 0 before the first delta, and at the end.
        left = max(size - replayed, 0) if batch is not None else 0
        seconds = left * (now - began) / replayed if replayed else 0.0
        progress(Replaying(done, of if batch is not None else done, round(seconds, 1)))

    report(())
    return report


def restore_newest(
    folder: Path, make: Make, *, before: int | None = None, damaged: list[DataError]
) -> tuple[OnlineLearner, int]:
    """Return the learner of the newest intact snapshot and its number; an empty one and 0 if none.

    before: a delta that it must not include; damaged: receives the errors of newer ones
    """
    for seq, path in snapshots_in(folder):
        if before is not None and seq >= before:
            continue
        try:
            return restored(path, make), seq
        except DataError as error:
            damaged.append(error)
    return make(), 0


def restored(path: Path, make: Make) -> OnlineLearner:
    """Return the learner of a snapshot; raise ``DataError``, naming the file, if it is damaged."""
    snapshot, learner = read_snapshot(path), make()
    try:
        learner.restore(snapshot.state, snapshot.about)
    except (EvergraphError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as e:
        why = str(e) if isinstance(e, EvergraphError) else reason(e)
        raise DataError(f"{path / STATE}: cannot be the state of this learner ({why})") from e
    return learner


def replay(learner: OnlineLearner, journal: Journal, seq: int) -> int:
    """Apply the deltas after ``seq`` in their original batches; return the number of the last."""
    for batch in journal.batches_after(seq):
        apply_entries(learner, journal, batch)
        seq = batch[-1].seq
    return seq


def apply_entries(
    learner: OnlineLearner, journal: Journal, batch: Sequence[JournalEntry]
) -> list[DeltaResult]:
    """Apply a batch from the journal, and record the results of deltas with keys; return all."""
    deltas = []
    for entry in batch:
        try:
            deltas.append(delta_from_bytes(entry.data))
        except DataError as error:
            raise DataError(f"{journal.path}: delta {entry.seq} cannot be read: {error}") from error
    try:
        results = learner.apply_batch(deltas)
    except Exception as error:
        raise UnappliedError(journal.path, batch, reason(error)) from error
    if not journal.readonly:
        journal.keys.keep_results(deltas, results)
    return results


def reason(error: Exception) -> str:
    """Return an error as one line."""
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


class FolderReader:
    """The learner of a folder, without locking or writing anything; see ``LearnerFolder``."""

    def __init__(
        self, columns: KeptColumns, make: Make, *, progress: Progress | None = None
    ) -> None:
        self.columns, self.make = columns, make
        self.path = path = columns.folder
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
                recovered = recover(self.path, self.make, self._journal, progress=progress)
            except DataError:
                if self._newest() == newest:  # files were not replaced, so they are damaged
                    raise
                continue
            if not self._journal.aside.rewritten(self._rewritten):
                break
        self.learner, self.seq, self.snapshot = recovered.learner, recovered.seq, recovered.snapshot
        self._seconds = recovered.seconds
        self._is_behind = recovered.seq < self._journal.last()

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
            late = (
                self._is_behind and markers.acknowledged_in(self.path / ACKNOWLEDGED_FILE) > before
            )
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
        firsts = self._journal.aside.rewritten(self._rewritten)
        self._rewritten += len(firsts)
        return any(first <= self.seq for first in firsts)

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
