"""From the files of a folder to the learner: the last good snapshot, then the journal."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.online.codecs.delta_bytes import delta_from_bytes
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.entries import JournalEntry, named
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, acknowledged_in
from evergraph.online.folder.replaying import Progress, Replaying
from evergraph.online.folder.snapshot import read_snapshot, snapshots_in
from evergraph.online.folder.state_machine import StateMachine

logger = logging.getLogger(__name__)
OFTEN = 0.5  # seconds between two words on how far a recovery is


@dataclass(frozen=True, eq=False)
class Recovered:
    """A learner as its last delta left it.

    Attributes:
        learner: the same, bit for bit, as if it had never stopped.
        seq: how many deltas it has been given.
        snapshot: how many of these the snapshot held that recovery began with; 0 if none did.
    """

    learner: StateMachine
    seq: int
    snapshot: int


def recover(
    folder: Path,
    make: Callable[[], StateMachine],
    journal: Journal,
    progress: Progress | None = None,
) -> Recovered:
    """Return the learner of a folder.

    A snapshot that is not what was written is passed over for the one before, with a warning that
    names the file: the journal still has all deltas since. A journal that is not what was written
    is refused: nothing else has them.
    """
    acknowledged = acknowledged_in(folder / ACKNOWLEDGED_FILE)  # first: another process may go on
    learner = make()
    begun = _restore(folder, learner, journal)
    seq = replay(learner, journal, begun, progress)
    noted = max(acknowledged, *(number for number, _ in snapshots_in(folder)), 0)
    if journal.last() < noted:
        raise DataError(
            f"{journal.path}: ends with delta {journal.last()}, but {noted} were acknowledged: its "
            "end is damaged or its -wal file is gone, put the folder back from a backup"
        )
    return Recovered(learner, seq, begun)


def _restore(folder: Path, learner: StateMachine, journal: Journal) -> int:
    """Restore the newest snapshot that is whole; return its number, 0 if there is none."""
    wrong = ""
    for seq, path in snapshots_in(folder):
        try:
            snapshot = read_snapshot(path)
        except DataError as error:
            wrong = wrong or f" ({error})"
            logger.warning("%s: going back to the snapshot before", error)
            continue
        learner.restore(snapshot.state, snapshot.about)
        return seq
    if journal.first() > 1:
        raise DataError(
            f"{folder}: there is no whole snapshot{wrong}, and the journal begins with delta "
            f"{journal.first()}: put the folder back from a backup"
        )
    return 0


def replay(
    learner: StateMachine, journal: Journal, seq: int, progress: Progress | None = None
) -> int:
    """Apply the deltas after one, batch by batch as they were; return the number of the last."""
    first, began, told = seq, time.monotonic(), -1.0
    of = 0 if progress is None else max(journal.last() - seq, 0)
    for batch in journal.batches_after(seq):
        now = time.monotonic() - began
        if progress is not None and now - told >= OFTEN:
            done = seq - first
            progress(Replaying(done, of, round(now / done * (of - done), 1) if done else 0.0))
            told = now
        _apply(learner, journal, batch)
        seq = batch[-1].seq
    if progress is not None:
        progress(Replaying(seq - first, of, 0.0))
    return seq


def _apply(learner: StateMachine, journal: Journal, batch: Sequence[JournalEntry]) -> None:
    """Apply the deltas of a batch that are in the journal; note what came of those with keys."""
    deltas = [_read(journal.path, entry) for entry in batch]
    try:
        results = learner.apply_batch(deltas)
    except Exception as error:
        raise DataError(
            f"{journal.path}: {named(batch)} cannot be applied ({error}): another version of "
            "evergraph may be able to, or put the folder back from a backup"
        ) from error
    if not journal.readonly:
        note_results(journal, deltas, results)


def note_results(journal: Journal, deltas: Sequence[Delta], results: Sequence[DeltaResult]) -> None:
    """Note beside the keys of deltas what came of these."""
    for delta, result in zip(deltas, results, strict=True):
        if delta.key is not None:
            journal.keys.keep_result(delta.key, result.seq, result_text(result))


def _read(path: Path, entry: JournalEntry) -> Delta:
    try:
        return delta_from_bytes(entry.data)
    except DataError as error:
        raise DataError(f"{path}: delta {entry.seq} cannot be read: {error}") from error


def delta_of(entry: JournalEntry) -> Delta:
    """Return the delta of an entry of another journal; raise unless it is what was written."""
    delta = delta_from_bytes(entry.data)
    if entry.key not in (None, delta.key):
        raise DataError(f"delta {entry.seq} has the key {delta.key!r}, not {entry.key!r}")
    return delta


def result_text(applied: DeltaResult) -> str:
    """Return what is written beside a delta's key."""
    return json.dumps(asdict(applied), sort_keys=True)


def result_of(text: str) -> DeltaResult:
    """Return what was written beside a delta's key.

    >>> result_of(result_text(DeltaResult(seq=3, new_nodes=1)))
    DeltaResult(seq=3, new_nodes=1, classes=0, recomputed=0, predicted=0, right=0, counted=0)
    """
    return DeltaResult(**json.loads(text))
