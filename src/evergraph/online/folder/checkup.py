"""Whether a learner's folder is sound: every file, and what its learner has summed up.

And the way out where it cannot be opened: deltas that are left out by hand (``skip``).
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch

from evergraph.core.errors import ConfigurationError, DataError, EvergraphError
from evergraph.core.file_lock import LOCK_FILE, is_held
from evergraph.online.codecs.delta_bytes import delta_from_bytes, is_same
from evergraph.online.folder.columns_file import COLUMNS_FILE, stored_columns
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.journal_rows import NOTHING, SetAside, decoded
from evergraph.online.folder.learner_folder import LearnerFolder, maker_of
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    acknowledged_in,
    lock_folder,
    stored_parameters,
    sync,
)
from evergraph.online.folder.recovery import (
    UnappliedError,
    apply_entries,
    open_journal,
    restore_newest,
)
from evergraph.online.folder.snapshot import (
    ABOUT,
    MANIFEST,
    STATE,
    Snapshot,
    read_snapshot,
    remove_snapshot,
    snapshots_in,
)
from evergraph.online.folder.sqlite_file import open_for_reading
from evergraph.online.learner import OnlineLearner
from evergraph.online.recount import recount

KNOWN = {FORMAT_FILE, COLUMNS_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, LOCK_FILE}
KNOWN |= {f"{JOURNAL_FILE}-wal", f"{JOURNAL_FILE}-shm"}
IN_SNAPSHOT = {STATE, ABOUT, MANIFEST}
STAGE = "verify"
OnProgress = Callable[[str, int, int], None]
Make = Callable[[], OnlineLearner]
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        file: in the folder; ``learner`` for what its learner has summed up.
        what: one sentence.
    """

    file: str
    what: str


def checkup(
    folder: Path, *, quick: bool = False, on_progress: OnProgress | None = None
) -> list[Finding]:
    """Return all that is wrong with a folder; nothing is changed.

    Another process may go on writing: what changes under our eyes is not taken for a fault.

    quick: look at files alone; otherwise deltas are applied again and everything is counted anew,
    which takes about as long as learning it, and twice its memory.
    """
    if not folder.is_dir() or stored_parameters(folder) is None:
        raise DataError(f"{folder} holds no learner: there is no {FORMAT_FILE}")
    written = is_held(folder / LOCK_FILE)
    found = [*_listed(folder, written=written)]
    acknowledged = None
    try:
        acknowledged = acknowledged_in(folder / ACKNOWLEDGED_FILE)  # before the journal: it goes on
    except DataError as error:
        found.append(_said(folder, error, ACKNOWLEDGED_FILE))
    told = None if on_progress is None else partial(on_progress, STAGE)
    found += [Finding(JOURNAL_FILE, what) for what in check_journal(folder / JOURNAL_FILE, told)]
    snapshots = []
    for _, path in snapshots_in(folder):
        try:
            snapshots.append(read_snapshot(path))
        except DataError as error:
            if path.exists():  # else it has been replaced meanwhile
                found.append(_said(folder, error, path.name))
    if acknowledged is not None and not any(each.file == JOURNAL_FILE for each in found):
        found += _ends(folder, acknowledged, written=written)
    if not quick:
        found += _learner(folder, maker_of(folder), snapshots, sound=not found)
    return found


def _said(folder: Path, error: Exception, file: str) -> Finding:
    """Return what an error says of a file, without the way to it."""
    text = str(error).replace(f"{folder}{os.sep}", "")
    return Finding(file, text.removeprefix(f"{file}: "))


def _listed(folder: Path, *, written: bool) -> Iterator[Finding]:
    """Look at all names and rights; what lies aside belongs to the process that writes, if any."""
    snapshots = [path for _, path in snapshots_in(folder)]
    for path in sorted(folder.iterdir()):
        inside = sorted(path.iterdir()) if path in snapshots else []
        if path.name.startswith("."):
            if not written:
                yield Finding(path.name, "was left by a process that was killed")
        elif not inside and path.name not in KNOWN:
            yield Finding(path.name, "is no file of a learner's folder")
        for file in inside:
            if file.name not in IN_SNAPSHOT:
                yield Finding(f"{path.name}/{file.name}", "is no file of a snapshot")
        for each in (path, *inside):
            yield from _rights(folder, each)
    if not (folder / ACKNOWLEDGED_FILE).exists():
        yield Finding(ACKNOWLEDGED_FILE, "is missing: a journal that loses its end is not noticed")
    try:
        stored_columns(folder)
    except DataError as error:
        yield _said(folder, error, COLUMNS_FILE)
    except EvergraphError:
        return  # columns of one's own, whose encoder is not here


def _rights(folder: Path, path: Path) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # SQLite's files come and go
        return
    name = str(path.relative_to(folder))
    if mode & stat.S_IWOTH:
        yield Finding(name, f"may be written by everybody (mode {stat.S_IMODE(mode):o})")
    if not os.access(path, os.R_OK):
        yield Finding(name, "may not be read by this user")


def _ends(folder: Path, acknowledged: int, *, written: bool) -> Iterator[Finding]:
    """Compare the journal's ends with what else tells of them."""
    with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
        first, last = journal.first(), journal.last()
    numbers = [number for number, _ in snapshots_in(folder)]
    if acknowledged > last:
        yield Finding(JOURNAL_FILE, f"ends with delta {last}, but {acknowledged} were acknowledged")
    if acknowledged < last and not written and (folder / ACKNOWLEDGED_FILE).exists():
        yield Finding(
            ACKNOWLEDGED_FILE,
            f"tells {acknowledged}, and the journal ends with delta {last}: a process was killed "
            "between the two, or the file is old; whoever opens the folder to write mends it",
        )
    if numbers and numbers[0] > last and not written:
        yield Finding(JOURNAL_FILE, f"ends with delta {last}, before snapshot-{numbers[0]}")
    if first > 1 and not any(number + 1 >= first for number in numbers):
        yield Finding(JOURNAL_FILE, f"begins with delta {first}, and no snapshot holds the rest")


def _learner(
    folder: Path, make: Make, snapshots: list[Snapshot], *, sound: bool
) -> Iterator[Finding]:
    """Bring the learner back, and count what it has summed up."""
    for newer, older in pairwise(snapshots):
        yield from _replayed(folder, make, older, newer)
    try:
        with LearnerFolder.open(folder, make=make, readonly=True) as opened:
            learner = opened.learner
    except Exception as error:
        if sound or not isinstance(error, DataError):  # else it has been said
            yield _said(folder, error, "learner")
        return
    try:
        yield from (Finding("learner", what) for what in recount(learner))
        width = learner.status().features
    except Exception as error:
        yield Finding("learner", f"cannot be counted anew ({type(error).__name__}: {error})")
        return
    try:
        scheme = stored_columns(folder)
    except EvergraphError:
        return  # has been said, or has an encoder of one's own
    if scheme is not None and width and scheme.width != width:
        yield Finding(COLUMNS_FILE, f"makes {scheme.width} features, and the learner has {width}")


def _replayed(folder: Path, make: Make, older: Snapshot, newer: Snapshot) -> Iterator[Finding]:
    """Apply the deltas between two snapshots to the older one, and compare it with the newer."""
    name = f"snapshot-{newer.seq}"
    try:
        learner = make()
        learner.restore(older.state, older.about)
        with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
            for batch in journal.batches_after(older.seq):
                if batch[-1].seq > newer.seq:
                    break
                learner.apply_batch([delta_from_bytes(entry.data) for entry in batch])
        state = learner.state()
    except DataError:
        return  # deltas in between are gone, or damaged, which has been said
    except Exception as error:
        yield Finding(name, f"or snapshot-{older.seq} cannot be restored ({error})")
        return
    other = [
        each
        for each in sorted(state.keys() | newer.state.keys())
        if each not in state
        or each not in newer.state
        or not torch.equal(state[each], newer.state[each])
    ]
    if other:
        yield Finding(
            name, f"is not what snapshot-{older.seq} and the journal make ({', '.join(other[:3])})"
        )


def check_journal(path: Path, told: Told | None = None) -> Iterator[str]:
    """Yield what is wrong with a journal, a sentence each; told: how many deltas of how many.

    It is looked at as it is at one moment, whoever writes to it.
    """
    if not path.exists():
        yield "is missing"
        return
    try:
        with closing(open_for_reading(path)) as connection:
            connection.execute("BEGIN")
            for (said,) in connection.execute("PRAGMA integrity_check(3)"):
                if said != "ok":
                    yield f"SQLite finds it damaged ({said})"
            yield from _deltas(connection, told)
            yield from _keys(connection)
    except (sqlite3.Error, DataError) as error:
        yield f"cannot be read ({error})"


def _deltas(connection: sqlite3.Connection, told: Told | None) -> Iterator[str]:
    # No gap is right: the number of a delta that was set aside goes to the next one, or stays with
    # a delta of nothing. Whether snapshots hold all before the first one is asked elsewhere.
    count = int(connection.execute("SELECT count(*) FROM deltas").fetchone()[0])
    before = batch = 0
    rows = connection.execute("SELECT seq, bytes, coalesce(batch, seq) FROM deltas ORDER BY seq")
    for place, (seq, data, of) in enumerate(rows, 1):
        if before and seq != before + 1:
            yield f"delta {before + 1} is missing, the next one is {seq}"
        if of not in (seq, batch):
            yield f"delta {seq} belongs to batch {of}, and the one before it to {batch or 'none'}"
        try:
            delta_from_bytes(data)
        except DataError as error:
            yield f"delta {seq} cannot be read ({error})"
        before, batch = seq, of
        if told is not None:
            told(place, count)


def _keys(connection: sqlite3.Connection) -> Iterator[str]:
    ends = (
        "SELECT max(coalesce(max(seq), 0), (SELECT coalesce(max(seq), 0) FROM start)) FROM deltas"
    )
    last = int(connection.execute(ends).fetchone()[0])
    query = "SELECT key, seq, digest, result FROM keys ORDER BY seq"
    for key, seq, digest, result in connection.execute(query):
        name = repr(decoded(key))
        if not 0 < seq <= last:
            yield f"key {name} is that of delta {seq}, and the journal ends with {last}"
            continue
        row = connection.execute("SELECT bytes FROM deltas WHERE seq = ?", (seq,)).fetchone()
        if row is not None and not is_same(row[0], digest):
            yield f"key {name} is that of delta {seq}, which has other contents"
        try:
            right = result is None or json.loads(result)["seq"] == seq
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            yield f"what came of key {name} is not that of delta {seq}"


def skip(folder: Path, *seqs: int, why: str, make: Make | None = None) -> list[SetAside]:
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
    with lock_folder(folder):
        _check_without(folder, make, frozenset(seqs))
        # First the snapshots: a process that is killed in between has left a folder as it was.
        for number, path in snapshots_in(folder):
            if number >= min(seqs):
                remove_snapshot(path)
        sync(folder)  # no power cut may bring them back
        with closing(open_journal(folder, make)) as journal:
            journal.aside.skip(dict.fromkeys(sorted(set(seqs)), why))
            return journal.aside.listed()[-len(set(seqs)) :]


def listed(folder: Path) -> list[SetAside]:
    """Return what was set aside in a folder, which another process may be writing to.

    Nothing where its journal cannot be read, of which ``checkup`` tells.
    """
    try:
        with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
            return journal.aside.listed()
    except DataError:
        return []


def _check_without(folder: Path, make: Make, seqs: Collection[int]) -> None:
    """Raise unless a learner can be recovered without these deltas; change nothing."""
    with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
        _check_there(journal, seqs)
        learner = make()
        # Of damaged snapshots whoever opens the folder tells.
        begun = restore_newest(folder, learner, before=min(seqs), damaged=[])
        if not begun and journal.first() > 1:
            raise DataError(
                f"{folder}: delta {min(seqs)} cannot be left out, since no snapshot from before it "
                f"is there and the journal begins with delta {journal.first()}: forget its nodes "
                "instead"
            )
        try:
            for batch in journal.batches_after(begun):
                left = [
                    replace(entry, data=NOTHING, key=None) if entry.seq in seqs else entry
                    for entry in batch
                ]
                apply_entries(learner, journal, left)
        except UnappliedError as error:
            numbers = ", ".join(map(str, sorted(seqs)))
            words = " ".join(f"--skip {seq}" for seq in sorted({*seqs, error.first}))
            raise DataError(
                f"{folder}: without delta{'s' if len(seqs) > 1 else ''} {numbers}, {error.name} "
                f"cannot be applied ({error.why}): leave that out as well with {words}, or put the "
                "folder back from a backup; nothing was changed"
            ) from error


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
