"""Leaving deltas out by hand, where a folder cannot be opened with them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.folder.journal import JOURNAL_FILE, NOTHING, Journal, SetAside
from evergraph.online.folder.journal_rows import JournalEntry
from evergraph.online.folder.learner_folder import maker_of
from evergraph.online.folder.markers import FolderLock, stored_parameters, sync
from evergraph.online.folder.recovery import (
    UnappliedError,
    apply_entries,
    open_journal,
    restore_newest,
)
from evergraph.online.folder.snapshot import remove_snapshot, snapshots_in

if TYPE_CHECKING:
    from evergraph.online.learner import OnlineLearner


def skip(
    folder: Path, *seqs: int, why: str, make: Callable[[], OnlineLearner] | None = None
) -> list[SetAside]:
    """Set deltas of a folder aside, so that the learner is as if they had brought nothing.

    Their numbers stay used, their keys are free again, and their bytes are kept with the reason.
    First all that came after is applied without them, to a learner that is then thrown away:
    where that fails, the sentence names the delta that does, and nothing is changed. Snapshots
    that hold them are removed; an older one, or a journal that begins with delta 1, must be there.

    Args:
        folder: of a learner, which no process has open for writing.
        seqs: the numbers of the deltas.
        why: a sentence that is kept with them.
        make: returns a learner that has seen nothing; as the folder says by default.
    """
    if not why.strip():
        raise ConfigurationError("why must say why a delta is left out, and is empty")
    if not (folder / JOURNAL_FILE).exists():
        raise DataError(f"{folder} holds no learner: there is no {JOURNAL_FILE}")
    if make is None and stored_parameters(folder) is None:
        raise DataError(f"{folder} holds no learner yet")
    make = make or maker_of(folder)
    lock = FolderLock(folder)
    try:
        _check_without(folder, make, frozenset(seqs))
        return _skipped(folder, make, sorted(set(seqs)), why)
    finally:
        lock.release()


def listed(folder: Path) -> list[SetAside]:
    """Return what was set aside in a folder, which another process may be writing to.

    Nothing where its journal cannot be read, of which ``checkup`` tells.
    """
    try:
        with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
            return journal.aside.listed()
    except DataError:
        return []


def _check_without(folder: Path, make: Callable[[], OnlineLearner], seqs: Collection[int]) -> None:
    """Raise unless a learner can be recovered without these deltas; change nothing."""
    journal = Journal(folder / JOURNAL_FILE, readonly=True)
    try:
        _check_there(journal, seqs)
        learner = make()
        begun = _restored(folder, learner, journal, min(seqs))
        for batch in journal.batches_after(begun):
            apply_entries(learner, journal, [_without(entry, seqs) for entry in batch])
    except UnappliedError as error:
        words = " ".join(f"--skip {seq}" for seq in sorted({*seqs, error.first}))
        raise DataError(
            f"{folder}: without {_named(seqs)}, {error.name} cannot be applied ({error.why}): "
            f"leave that out as well with {words}, or put the folder back from a backup; nothing "
            "was changed"
        ) from error
    finally:
        journal.close()


def _check_there(journal: Journal, seqs: Collection[int]) -> None:
    first, last = journal.first(), journal.last()
    known = {entry.seq for entry in journal.aside.listed()}
    for seq in sorted(seqs):
        if not first <= seq <= last:
            hint = ": only snapshots hold it, forget its nodes instead" if seq < first else ""
            held = f"holds deltas {first} to {last}, not" if 0 < first <= last else "holds no delta"
            raise DataError(f"{journal.path}: {held} {seq}{hint}")
        if seq in known and next(journal.after(seq - 1)).data == NOTHING:
            raise DataError(f"{journal.path}: delta {seq} was left out already")


def _restored(folder: Path, learner: OnlineLearner, journal: Journal, seq: int) -> int:
    """Restore the newest whole snapshot from before a delta; return its number, 0 for none."""
    # Of damaged ones whoever opens the folder tells.
    number = restore_newest(folder, learner, before=seq, damaged=[])
    if not number and journal.first() > 1:
        raise DataError(
            f"{folder}: delta {seq} cannot be left out, since no snapshot from before it is there "
            f"and the journal begins with delta {journal.first()}: forget its nodes instead"
        )
    return number


def _without(entry: JournalEntry, seqs: Collection[int]) -> JournalEntry:
    return replace(entry, data=NOTHING, key=None) if entry.seq in seqs else entry


def _skipped(
    folder: Path, make: Callable[[], OnlineLearner], seqs: list[int], why: str
) -> list[SetAside]:
    # First the snapshots: a process that is killed in between has left a folder as it was.
    for number, path in snapshots_in(folder):
        if number >= seqs[0]:
            remove_snapshot(path)
    sync(folder)  # no power cut may bring them back
    journal = open_journal(folder, make)
    try:
        journal.aside.skip(dict.fromkeys(seqs, why))
        return journal.aside.listed()[-len(seqs) :]
    finally:
        journal.close()


def _named(seqs: Collection[int]) -> str:
    """Return which deltas these are, for a sentence.

    >>> _named([3]), _named([5, 3])
    ('delta 3', 'deltas 3, 5')
    """
    numbers = ", ".join(map(str, sorted(seqs)))
    return f"delta {numbers}" if len(seqs) == 1 else f"deltas {numbers}"
