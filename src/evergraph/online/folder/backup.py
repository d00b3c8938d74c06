"""A copy of a learner's folder that is right although another process goes on writing to it."""

from __future__ import annotations

import io
import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import disk_is_enough
from evergraph.online.folder.archive import OnProgress, Part, check_new, copied
from evergraph.online.folder.columns_file import COLUMNS_FILE
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    acknowledged_in,
    acknowledgement,
    stored_parameters,
)
from evergraph.online.folder.snapshot import ABOUT, MANIFEST, STATE, read_manifest, snapshots_in
from evergraph.online.folder.sqlite_file import open_for_reading, sound

TRIES = 20  # how often the writer may take two snapshots while one is being opened
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackedUp:
    """What a backup holds.

    Attributes:
        seq: the number of its last delta.
        snapshot: how many deltas its snapshot holds; 0 where it has none.
        bytes: of all its files.
    """

    seq: int
    snapshot: int
    bytes: int


def backup(folder: Path, to: Path, *, on_progress: OnProgress | None = None) -> BackedUp:
    """Copy a folder that may be being written to.

    First the files of its snapshots are opened, so that they stay readable when newer ones replace
    them; then the journal is copied as it is at one moment. Every snapshot is older than that
    moment, and the journal reaches back to the newest of them, unless two more were taken
    meanwhile: then it begins anew. Nobody waits for it, and no lock is taken.

    to: a folder that is not there or empty, or a file that ends in .tar; there once it is whole.
    """
    if stored_parameters(folder) is None:
        raise DataError(f"{folder} holds no learner: there is no {FORMAT_FILE}")
    check_new(to)
    for _ in range(TRIES):
        with ExitStack() as opened:
            noted = acknowledged_in(folder / ACKNOWLEDGED_FILE)  # first: the journal goes on
            paths = _paths(folder)
            snapshots = [opened.enter_context(_opened(path)) for path in paths]
            journal = opened.enter_context(_journal_copy(folder, to))
            if journal.last < noted:
                raise DataError(
                    f"{folder / JOURNAL_FILE}: ends with delta {journal.last}, but {noted} were "
                    "acknowledged: its end is damaged, so this is no folder to back up"
                )
            usable = [parts for seq, parts in snapshots if seq + 1 >= journal.first and parts]
            if journal.first <= 1 or usable:
                return _copied(folder, to, journal, usable, on_progress)
            if _paths(folder) == paths:  # nobody took them away: they are damaged
                raise DataError(
                    f"{folder}: there is no whole snapshot, and the journal begins with delta "
                    f"{journal.first}: so this is no folder to back up"
                )
    raise ResourceError(f"{folder}: its snapshots are replaced faster than they can be opened")


def _paths(folder: Path) -> list[Path]:
    return [path for _, path in snapshots_in(folder)]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, list[Part]]]:
    """Yield number and files of a snapshot; none where it is gone or damaged."""
    with ExitStack() as files:
        try:
            manifest = read_manifest(path)
            parts = [_part(path, name, files) for name in (STATE, ABOUT, MANIFEST)]
        except (OSError, DataError) as error:
            if path.exists():
                logger.warning("%s: going on with the snapshot before", error)
            yield 0, []
            return
        digests = {f"{path.name}/{name}": facts["sha256"]
                   for name, facts in manifest["files"].items()}  # fmt: skip
        yield manifest["seq"], [replace(part, digest=digests.get(part.name)) for part in parts]


def _part(folder: Path, name: str, files: ExitStack) -> Part:
    file = files.enter_context((folder / name).open("rb"))
    return Part(f"{folder.name}/{name}", file, os.fstat(file.fileno()).st_size)


@dataclass(frozen=True)
class _JournalCopy:
    """A copy of the journal as it was at one moment, and its first and last number."""

    path: Path
    first: int
    last: int


@contextmanager
def _journal_copy(folder: Path, to: Path) -> Iterator[_JournalCopy]:
    """Copy the journal to a file beside the backup."""
    place = to.absolute().parent
    with disk_is_enough(to):
        place.mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(dir=place, prefix=".evergraph-backup-")
    with aside as name:
        path = Path(name) / JOURNAL_FILE
        copy_journal(folder / JOURNAL_FILE, path)
        with closing(Journal(path, readonly=True)) as journal:
            yield _JournalCopy(path, journal.first(), journal.last())


def copy_journal(source: Path, to: Path) -> None:
    """Copy a SQLite file as it is at one moment, whoever writes to it; it has no WAL then."""
    if not source.exists():
        raise DataError(f"{source}: is missing: put the folder back from a backup")
    with (
        sound(source),
        closing(open_for_reading(source)) as there,
        closing(sqlite3.connect(to, isolation_level=None)) as here,
    ):
        there.backup(here)
        here.execute("PRAGMA journal_mode = DELETE")  # so that the file alone is all of it


def _copied(
    folder: Path,
    to: Path,
    journal: _JournalCopy,
    snapshots: list[list[Part]],
    on_progress: OnProgress | None,
) -> BackedUp:
    """Copy everything with the newest snapshot that is whole."""
    if journal.first <= 1:
        snapshots = [*snapshots, []]  # the journal alone holds all
    for place, parts in enumerate(snapshots, 1):
        try:
            size = _copied_with(folder, to, journal, parts, on_progress)
        except DataError as error:
            if place == len(snapshots):
                raise
            logger.warning("%s: going on with the snapshot before", error)
            continue
        seq = int(parts[0].name.split("/")[0].removeprefix("snapshot-")) if parts else 0
        return BackedUp(max(journal.last, seq), seq, size)
    raise AssertionError("the last one is returned or raises")


def _copied_with(
    folder: Path,
    to: Path,
    journal: _JournalCopy,
    snapshot: list[Part],
    on_progress: OnProgress | None,
) -> int:
    parts = [_plain(folder / FORMAT_FILE), *snapshot]
    if (folder / COLUMNS_FILE).exists():  # it was there before the first delta was
        parts.append(_plain(folder / COLUMNS_FILE))
    noted = acknowledgement(journal.last)
    parts.append(Part(ACKNOWLEDGED_FILE, io.BytesIO(noted), len(noted)))
    with journal.path.open("rb") as file:
        parts.append(Part(JOURNAL_FILE, file, journal.path.stat().st_size))
        return copied(parts, to, on_progress)


def _plain(path: Path) -> Part:
    data = path.read_bytes()
    return Part(path.name, io.BytesIO(data), len(data))
