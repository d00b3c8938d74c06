"""A copy of a learner's folder, right although another process writes to it, and the way back.

A backup is a folder, or one tar archive. Either is there whole or not at all: it is written aside,
and has its name once the disk has it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from evergraph.core.errors import ConfigurationError, DataError, ResourceError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import make_folders, written_aside
from evergraph.online.folder.checkup import check_journal
from evergraph.online.folder.columns_file import COLUMNS_FILE
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    acknowledged_in,
    acknowledgement,
    stored_parameters,
    sync,
)
from evergraph.online.folder.snapshot import (
    ABOUT,
    MANIFEST,
    STATE,
    read_manifest,
    read_snapshot,
    snapshots_in,
)
from evergraph.online.folder.sqlite_file import open_for_reading, sound
from evergraph.online.folder.status import folder_bytes

TRIES = 20  # how often the writer may take two snapshots while one is being opened
PIECE = 1 << 20
COPY, VERIFY = "copy", "verify"  # the stages of progress
OnProgress = Callable[[str, int, int], None]
_SINGLE = {FORMAT_FILE, COLUMNS_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE}
_IN_SNAPSHOT = re.compile(rf"snapshot-\d{{1,19}}/({STATE}|{ABOUT}|{MANIFEST})")
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
            found = snapshots_in(folder)
            snapshots = [(seq, _opened(path, opened)) for seq, path in found]
            journal = opened.enter_context(_journal_aside(folder, to))
            first, last = _ends(journal)
            if last < noted:
                raise DataError(
                    f"{folder / JOURNAL_FILE}: ends with delta {last}, but {noted} were "
                    "acknowledged: its end is damaged, so this is no folder to back up"
                )
            usable = [(seq, parts) for seq, parts in snapshots if parts and seq >= first - 1]
            if first <= 1:
                usable.append((0, []))  # the journal alone holds all
            for seq, snapshot in usable:  # the newest that is found whole while it is copied
                try:
                    parts = [*_small_files(folder, last), *snapshot, _opened_file(journal, opened)]
                    return BackedUp(max(last, seq), seq, copied(parts, to, on_progress))
                except DataError as error:
                    if seq == usable[-1][0]:
                        raise
                    logger.warning("%s: going on with the snapshot before", error)
            if snapshots_in(folder) == found:  # nobody took them away: they are damaged
                raise DataError(
                    f"{folder}: there is no whole snapshot, and the journal begins with delta "
                    f"{first}: so this is no folder to back up"
                )
    raise ResourceError(f"{folder}: its snapshots are replaced faster than they can be opened")


@dataclass(frozen=True)
class Part:
    """A file that is copied.

    Attributes:
        name: in the folder, such as ``snapshot-3/about.json``.
        file: open to read.
        size: in bytes.
        digest: SHA-256 that it must have; None where that is not known.
    """

    name: str
    file: IO[bytes]
    size: int
    digest: str | None = None


def _opened_file(path: Path, files: ExitStack, name: str = "", digest: str | None = None) -> Part:
    file = files.enter_context(path.open("rb"))
    return Part(name or path.name, file, os.fstat(file.fileno()).st_size, digest)


def _opened(path: Path, files: ExitStack) -> list[Part]:
    """Return the files of a snapshot, open until the end; none where it is gone or damaged."""
    try:
        known = read_manifest(path)["files"]
        return [
            _opened_file(
                path / name, files, f"{path.name}/{name}", known.get(name, {}).get("sha256")
            )
            for name in (STATE, ABOUT, MANIFEST)
        ]
    except (OSError, DataError) as error:
        if path.exists():
            logger.warning("%s: going on with the snapshot before", error)
        return []


def _small_files(folder: Path, last: int) -> Iterator[Part]:
    """Yield the other files of a backup whose journal ends with a delta."""
    data = {FORMAT_FILE: (folder / FORMAT_FILE).read_bytes()}
    if (folder / COLUMNS_FILE).exists():  # it was there before the first delta was
        data[COLUMNS_FILE] = (folder / COLUMNS_FILE).read_bytes()
    data[ACKNOWLEDGED_FILE] = acknowledgement(last)
    for name, content in data.items():
        yield Part(name, io.BytesIO(content), len(content))


@contextmanager
def _journal_aside(folder: Path, to: Path) -> Iterator[Path]:
    """Copy the journal to a file beside the backup."""
    place = to.absolute().parent
    with disk_is_enough(to):
        place.mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(dir=place, prefix=".evergraph-backup-")
    with aside as name:
        copy_journal(folder / JOURNAL_FILE, Path(name) / JOURNAL_FILE)
        yield Path(name) / JOURNAL_FILE


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


def _ends(journal: Path) -> tuple[int, int]:
    with closing(Journal(journal, readonly=True)) as opened:
        return opened.first(), opened.last()


class _Checked:
    """Reads a part once, tells how many bytes have been read, and knows whether it was whole."""

    def __init__(self, part: Part, told: Callable[[int], None]) -> None:
        self._part, self._told = part, told
        self._digest, self._left = hashlib.sha256(), part.size

    def read(self, most: int = PIECE) -> bytes:
        piece = self._part.file.read(min(most, self._left))
        self._left -= len(piece)
        self._digest.update(piece)
        self._told(len(piece))
        ended = not piece or not self._left
        if ended and (self._left or self._part.digest not in (None, self._digest.hexdigest())):
            raise DataError(f"{self._part.name}: its contents have changed since it was written")
        return piece


def copied(parts: list[Part], to: Path, on_progress: OnProgress | None) -> int:
    """Copy files into a backup; return how many bytes these were."""
    total, done = sum(part.size for part in parts), 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(COPY, done, total)

    if is_tar(to):
        check_new(to)
        with (
            disk_is_enough(to),
            written_aside(to) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            for part in parts:
                about = tarfile.TarInfo(part.name)
                about.size = part.size
                archive.addfile(about, _Checked(part, told))
        return total
    with folder_aside(to) as aside:
        for part in parts:
            path = aside / part.name
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(_Checked(part, told), file, PIECE)
    return total


def is_tar(path: Path) -> bool:
    """Whether a name is that of an archive.

    >>> is_tar(Path("monday.tar")), is_tar(Path("monday"))
    (True, False)
    """
    return path.suffix == ".tar"


def check_new(path: Path) -> None:
    """Raise unless nothing is there, or an empty folder where one is to be made."""
    if path.exists() and (is_tar(path) or not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} is there already: name a place that is not, or is empty")


@contextmanager
def folder_aside(to: Path) -> Iterator[Path]:
    """Yield an empty folder that has the name ``to`` once it is filled and on the disk."""
    check_new(to)
    aside = to.absolute().with_name(f".{to.absolute().name}-begun")
    shutil.rmtree(aside, ignore_errors=True)  # what a killed process left
    try:
        with disk_is_enough(to):
            make_folders(aside)
            yield aside
            for path in (*aside.rglob("*"), aside):
                sync(path)
            aside.rename(to)
            sync(aside.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def restore(source: Path, to: Path, *, on_progress: OnProgress | None = None) -> BackedUp:
    """Make a folder of a backup; return what it holds.

    Every checksum is looked at, and the folder is opened once to read, which applies the deltas
    after its snapshot. Where anything is wrong, ``DataError`` says so and nothing is made.

    source: what ``backup`` wrote, a folder or a .tar; to: not there yet, or empty.
    """
    if not source.exists():
        raise DataError(f"{source}: is not there")
    with folder_aside(to) as aside:
        if is_tar(source):
            _unpack(source, aside, on_progress)
        else:
            aside.rmdir()
            backup(source, aside, on_progress=on_progress)
        return _proved(aside, on_progress)


def _unpack(archive: Path, folder: Path, on_progress: OnProgress | None) -> None:
    """Write the files of an archive into a folder; refuse whatever is no file of a learner's."""
    total = archive.stat().st_size
    try:
        with tarfile.open(archive, "r:") as members:
            for member in members:
                known = member.name in _SINGLE or _IN_SNAPSHOT.fullmatch(member.name)
                source = members.extractfile(member) if known and member.isreg() else None
                if source is None:
                    raise DataError(
                        f"a backup must hold files of a learner's folder, not {member.name!r}"
                    )
                path = folder / member.name
                path.parent.mkdir(exist_ok=True)
                with source, path.open("wb") as file:
                    shutil.copyfileobj(source, file, PIECE)
                if on_progress is not None:
                    on_progress(COPY, member.offset_data + member.size, total)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{archive}: is no whole tar archive ({error})") from None


def _proved(folder: Path, on_progress: OnProgress | None) -> BackedUp:
    """Return what a folder holds; raise unless all of it is what was written."""
    if stored_parameters(folder) is None:
        raise DataError(f"the backup holds no {FORMAT_FILE}")
    for _, path in snapshots_in(folder):
        read_snapshot(path)
    told = None if on_progress is None else partial(on_progress, VERIFY)
    for what in check_journal(folder / JOURNAL_FILE, told):
        raise DataError(f"{folder / JOURNAL_FILE}: {what}")
    with LearnerFolder.of(folder, readonly=True) as opened:
        status = opened.status()
    for suffix in ("-wal", "-shm"):  # made by looking
        (folder / f"{JOURNAL_FILE}{suffix}").unlink(missing_ok=True)
    return BackedUp(status.seq, status.snapshot, folder_bytes(folder))
