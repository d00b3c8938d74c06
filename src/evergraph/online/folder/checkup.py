"""Whether a learner's folder is sound: every file, and what its learner has summed up."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.core.errors import DataError, EvergraphError
from evergraph.core.file_lock import LOCK_FILE, is_held
from evergraph.online.codecs.delta_bytes import delta_from_bytes, is_same
from evergraph.online.folder.columns_file import COLUMNS_FILE, parse_columns
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.journal_rows import decoded
from evergraph.online.folder.learner_folder import LearnerFolder, maker_of
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    acknowledged_in,
    stored_parameters,
)
from evergraph.online.folder.snapshot import (
    ABOUT,
    MANIFEST,
    STATE,
    Snapshot,
    read_snapshot,
    snapshots_in,
)
from evergraph.online.folder.sqlite_file import LAYOUT, has_table, layout_of, open_for_reading
from evergraph.online.recount import recount

if TYPE_CHECKING:
    from evergraph.online.learner import OnlineLearner

KNOWN = {FORMAT_FILE, COLUMNS_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, LOCK_FILE}
KNOWN |= {f"{JOURNAL_FILE}-wal", f"{JOURNAL_FILE}-shm"}
IN_SNAPSHOT = {STATE, ABOUT, MANIFEST}
STAGE = "verify"
OnProgress = Callable[[str, int, int], None]
Make = Callable[[], "OnlineLearner"]
_DELTAS = "SELECT seq, bytes, coalesce(batch, seq) FROM deltas ORDER BY seq"
_DELTAS_BEFORE = "SELECT seq, bytes, seq FROM deltas ORDER BY seq"
_KEYS = "SELECT key, seq, digest, result FROM keys ORDER BY seq"
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
    acknowledged = _acknowledged(folder)  # before the journal, which goes on
    found = [*_listed(folder, written=written)]
    if isinstance(acknowledged, Finding):
        found.append(acknowledged)
    told = None if on_progress is None else partial(on_progress, STAGE)
    found += [Finding(JOURNAL_FILE, what) for what in check_journal(folder / JOURNAL_FILE, told)]
    snapshots = [read for read in map(_snapshot, _paths(folder)) if read is not None]
    found += [read for read in snapshots if isinstance(read, Finding)]
    if isinstance(acknowledged, int) and not any(each.file == JOURNAL_FILE for each in found):
        found += _ends(folder, acknowledged, written=written)
    if not quick:
        whole = [read for read in snapshots if isinstance(read, Snapshot)]
        found += _learner(folder, maker_of(folder), whole, sound=not found)
    return found


def _acknowledged(folder: Path) -> int | Finding:
    try:
        return acknowledged_in(folder / ACKNOWLEDGED_FILE)
    except DataError as error:
        return _said(folder, error, ACKNOWLEDGED_FILE)


def _said(folder: Path, error: Exception, file: str) -> Finding:
    """Return what an error says of a file, without the way to it."""
    text = str(error).replace(f"{folder}{os.sep}", "")
    return Finding(file, text.removeprefix(f"{file}: "))


def _paths(folder: Path) -> list[Path]:
    return [path for _, path in snapshots_in(folder)]


def _listed(folder: Path, *, written: bool) -> Iterator[Finding]:
    """Look at all names and rights; what lies aside belongs to the process that writes, if any."""
    for path in sorted(folder.iterdir()):
        inside = sorted(path.iterdir()) if path in _paths(folder) else []
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
    if (folder / COLUMNS_FILE).exists():
        yield from _columns(folder)


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


def _columns(folder: Path) -> Iterator[Finding]:
    try:
        parse_columns((folder / COLUMNS_FILE).read_bytes(), folder / COLUMNS_FILE)
    except DataError as error:
        yield _said(folder, error, COLUMNS_FILE)
    except EvergraphError:
        return  # columns of one's own, whose encoder is not here


def _snapshot(path: Path) -> Snapshot | Finding | None:
    """Return a snapshot, or what is wrong with it; None where it has been replaced meanwhile."""
    try:
        return read_snapshot(path)
    except DataError as error:
        return _said(path.parent, error, path.name) if path.exists() else None


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
        yield from _width(folder, learner)
    except Exception as error:
        yield Finding("learner", f"cannot be counted anew ({type(error).__name__}: {error})")


def _width(folder: Path, learner: OnlineLearner) -> Iterator[Finding]:
    path, width = folder / COLUMNS_FILE, learner.status().features
    if path.exists() and width:
        try:
            scheme = parse_columns(path.read_bytes(), path)
        except EvergraphError:
            return  # has been said, or has an encoder of one's own
        if scheme.width != width:
            yield Finding(
                COLUMNS_FILE, f"makes {scheme.width} features, and the learner has {width}"
            )


def _replayed(folder: Path, make: Make, older: Snapshot, newer: Snapshot) -> Iterator[Finding]:
    """Apply the deltas between two snapshots to the older one, and compare it with the newer."""
    name = f"snapshot-{newer.seq}"
    try:
        learner = make()
        learner.restore(older.state, older.about)
        _apply_between(folder, learner, older.seq, newer.seq)
        state = learner.state()
    except DataError:
        return  # deltas in between are gone, or damaged, which has been said
    except Exception as error:
        yield Finding(name, f"or snapshot-{older.seq} cannot be restored ({error})")
        return
    other = [each for each in sorted(state.keys() | newer.state.keys())
             if each not in state or each not in newer.state
             or not _equal(state[each], newer.state[each])]  # fmt: skip
    if other:
        yield Finding(
            name, f"is not what snapshot-{older.seq} and the journal make ({', '.join(other[:3])})"
        )


def _apply_between(folder: Path, learner: OnlineLearner, seq: int, last: int) -> None:
    with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
        for batch in journal.batches_after(seq):
            if batch[-1].seq > last:
                return
            learner.apply_batch([delta_from_bytes(entry.data) for entry in batch])


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


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
            yield from _integrity(connection)
            layout = layout_of(connection)
            yield from _deltas(connection, _DELTAS if layout == LAYOUT else _DELTAS_BEFORE, told)
            yield from _keys(connection)
    except (sqlite3.Error, DataError) as error:
        yield f"cannot be read ({error})"


def _integrity(connection: sqlite3.Connection) -> Iterator[str]:
    for (said,) in connection.execute("PRAGMA integrity_check(3)"):
        if said != "ok":
            yield f"SQLite finds it damaged ({said})"


def _deltas(connection: sqlite3.Connection, query: str, told: Told | None) -> Iterator[str]:
    # No gap is right: the number of a delta that was set aside goes to the next one, or stays with
    # a delta of nothing. Whether snapshots hold all before the first one is asked elsewhere.
    count = int(connection.execute("SELECT count(*) FROM deltas").fetchone()[0])
    before = batch = 0
    for place, (seq, data, of) in enumerate(connection.execute(query), 1):
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


def _start(connection: sqlite3.Connection) -> int:
    """Return after which delta the journal begins, 0 where its first one tells."""
    if not has_table(connection, "start"):  # an earlier layout
        return 0
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM start").fetchone()[0])


def _keys(connection: sqlite3.Connection) -> Iterator[str]:
    last = int(connection.execute("SELECT coalesce(max(seq), 0) FROM deltas").fetchone()[0])
    last = max(last, _start(connection))
    for key, seq, digest, result in connection.execute(_KEYS):
        name = repr(decoded(key))
        if not 0 < seq <= last:
            yield f"key {name} is that of delta {seq}, and the journal ends with {last}"
            continue
        row = connection.execute("SELECT bytes FROM deltas WHERE seq = ?", (seq,)).fetchone()
        if row is not None and not is_same(row[0], digest):
            yield f"key {name} is that of delta {seq}, which has other contents"
        if not _is_result(result, seq):
            yield f"what came of key {name} is not that of delta {seq}"


def _is_result(text: str | None, seq: int) -> bool:
    if text is None:
        return True
    try:
        return bool(json.loads(text)["seq"] == seq)
    except (ValueError, KeyError, TypeError):
        return False
