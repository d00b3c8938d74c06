"""Recovery of a learner from its folder: the newest intact snapshot, then the journal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.core.errors import ConfigurationError, DataError, EvergraphError
from evergraph.core.safe_files import LOCK_FILE, disk_is_enough, make_folders
from evergraph.online.codecs.delta_bytes import delta_from_bytes
from evergraph.online.delta import DeltaResult
from evergraph.online.folder import markers
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, JournalEntry, named
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, FORMAT_FILE
from evergraph.online.folder.snapshot import STATE, read_snapshot, snapshots_in
from evergraph.online.learner import OnlineLearner

REPORTED = 0.5  # seconds between two progress reports
# Files that a process killed while creating the folder may leave.
_BEGUN = (LOCK_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, f".{FORMAT_FILE}-")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replaying:
    """Progress of a recovery."""

    done: int  # deltas replayed
    of: int  # deltas to replay
    seconds: float  # estimated time left; 0 before the first delta, and at the end


Progress = Callable[[Replaying], None]


def make_folder(path: Path) -> None:
    """Create a folder for a learner; reject one that holds anything else."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} must be a folder, but is a file")
    with disk_is_enough(path):
        make_folders(path)
    if not (path / FORMAT_FILE).exists():
        others = sorted(p.name for p in path.iterdir() if not p.name.startswith(_BEGUN))
        if others:
            raise ConfigurationError(
                f"{path} must be empty or a learner's folder, but it holds {others[0]!r} and no "
                f"{FORMAT_FILE}"
            )


def open_journal(
    path: Path, make: Callable[[], OnlineLearner], *, readonly: bool = False
) -> Journal:
    """Return the journal of a folder, whose parameters must match those of ``make``."""
    # The journal of a new folder is created before its format file, so that a folder with a format
    # file but no journal has lost it.
    stored = markers.stored_parameters(path)
    if stored is None and readonly:
        raise DataError(
            f"{path} holds no learner yet: there is no {FORMAT_FILE}; evergraph ingest creates one"
        )
    if stored is None:
        made = Journal(path / JOURNAL_FILE)
        if made.last():
            made.close()
            raise DataError(
                f"{path / FORMAT_FILE}: is missing, but the journal holds deltas: restore the "
                "folder from a backup"
            )
        markers.store_parameters(path, make().parameters)
        return made
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
    folder: Path,
    make: Callable[[], OnlineLearner],
    journal: Journal,
    *,
    known: int = 0,
    progress: Progress | None = None,
) -> Recovered:
    """Return the learner of a folder.

    A damaged snapshot is skipped for the previous one, with a warning. A damaged journal raises an
    error: nothing else has its deltas. Those at the end that were not acknowledged and cannot be
    applied are set aside with a warning; a read-only process stops before them.

    known: number of a delta up to which all were acknowledged, whatever the files say.
    """
    # Read before the journal, which another process may extend meanwhile.
    acknowledged = max(markers.acknowledged_in(folder / ACKNOWLEDGED_FILE), known)
    found: Recovered | None = None
    until: int | None = None  # the last delta to apply
    while found is None:
        try:
            found = _recovered(folder, make, journal, acknowledged, until, progress)
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
    return found


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
    make: Callable[[], OnlineLearner],
    journal: Journal,
    acknowledged: int,
    until: int | None,
    progress: Progress | None,
) -> Recovered:
    """Return the learner from the newest intact snapshot and the deltas since, up to ``until``."""
    reads = time.monotonic()
    damaged: list[DataError] = []
    learner, snapshot = restore_newest(folder, make, damaged=damaged)
    seq = snapshot
    for error in damaged:
        logger.warning("%s: using the previous snapshot", error)
    if not seq and journal.first() > 1:
        wrong = f" ({damaged[0]})" if damaged else ""
        raise DataError(
            f"{folder}: there is no intact snapshot{wrong}, and the journal begins with delta "
            f"{journal.first()}: restore the folder from a backup"
        )
    reading, began = time.monotonic() - reads, time.thread_time()
    report = _reporter(journal, seq, progress)
    for batch in journal.batches_after(seq):
        if until is not None and batch[-1].seq > until:
            break
        # If the system kills the process for its memory, nothing can be caught. So the journal
        # records that an unacknowledged batch is being applied, until that has ended: one that was
        # being applied when the last process ended counts as one that cannot be applied.
        recorded = not journal.readonly and _is_unacknowledged(journal, batch[0].seq, acknowledged)
        if recorded and journal.aside.begin(batch[0].seq):
            why = "the process ended while it was applied, twice"
            raise UnappliedError(journal.path, batch, why)
        try:
            apply_entries(learner, journal, batch)
        except UnappliedError:
            recorded = False  # stays recorded until it is set aside
            raise
        finally:  # also after an interrupt, which is not the batch's fault
            if recorded:
                journal.aside.end()
        report(batch)
        seq = batch[-1].seq
    report(None)
    return Recovered(learner, seq, snapshot, time.thread_time() - began, reading)


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
    folder: Path,
    make: Callable[[], OnlineLearner],
    *,
    before: int | None = None,
    damaged: list[DataError],
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


def restored(path: Path, make: Callable[[], OnlineLearner]) -> OnlineLearner:
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
