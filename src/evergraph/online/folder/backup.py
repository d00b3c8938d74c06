"""Backup of a learner's folder, consistent even while another process writes, and restore.

A backup is a folder or a tar archive. It is written under another name and renamed once it is
complete and on disk.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from evergraph.core.errors import ConfigurationError, DataError, ResourceError
from evergraph.core.safe_files import disk_is_enough, scratch_beside, sync
from evergraph.online.folder import markers, recovery, snapshot
from evergraph.online.folder.checkup import OnProgress
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder, maker_of
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    COLUMNS_FILE,
    FORMAT_FILE,
    folder_bytes,
)
from evergraph.online.folder.snapshot import ABOUT, MANIFEST, STATE, snapshots_in
from evergraph.online.folder.sqlite_file import check_journal, open_for_reading, sound

TRIES = 20  # attempts, if the writer replaces snapshots while they are being opened
PIECE = 1 << 20
COPY, VERIFY = "copy", "verify"  # the stages of progress
_SINGLE = {FORMAT_FILE, COLUMNS_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE}
_IN_SNAPSHOT = re.compile(rf"snapshot-\d{{1,19}}/({STATE}|{ABOUT}|{MANIFEST})")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackedUp:
    """Contents of a backup."""

    seq: int  # the number of its last delta
    snapshot: int  # the number of its snapshot; 0 if it has none
    bytes: int  # of all its files


def backup(folder: Path, to: Path, *, on_progress: OnProgress | None = None) -> BackedUp:
    """Copy a folder, while another process may write to it, which never waits.

    The files of its snapshots are opened first, so that they stay readable when newer ones replace
    them; then the journal is copied in one transaction. It reaches back to the newest of them,
    unless two more were taken meanwhile: then all starts over.

    to: a folder that does not exist or is empty, or a file that ends in .tar; it appears once
    complete.
    """
    if markers.stored_parameters(folder) is None:
        raise DataError(f"{folder} holds no learner: there is no {FORMAT_FILE}")
    check_new(to)
    for _ in range(TRIES):
        with ExitStack() as opened:
            # First, as the journal goes on.
            acknowledged = markers.acknowledged_in(folder / ACKNOWLEDGED_FILE)
            numbered_paths = snapshots_in(folder)
            snapshots = [(seq, _opened(path, opened)) for seq, path in numbered_paths]
            journal = opened.enter_context(scratch_beside(to)) / JOURNAL_FILE
            copy_journal(folder / JOURNAL_FILE, journal)
            with closing(Journal(journal, readonly=True)) as copy:
                first, last = copy.first(), copy.last()
            if last < acknowledged:
                raise DataError(
                    f"{folder / JOURNAL_FILE}: ends with delta {last}, but {acknowledged} were "
                    "acknowledged: its end is damaged, so the folder cannot be backed up"
                )
            usable = [(seq, parts) for seq, parts in snapshots if parts and seq >= first - 1]
            if first <= 1:
                usable.append((0, []))  # the journal alone is complete
            for seq, files in usable:  # the newest that turns out to be intact while copying
                small = {ACKNOWLEDGED_FILE: markers.acknowledgement(last)}
                for name in (FORMAT_FILE, COLUMNS_FILE):  # columns: written before the first delta
                    if (folder / name).exists():
                        small[name] = (folder / name).read_bytes()
                parts = [
                    BackupFile(name, io.BytesIO(data), len(data)) for name, data in small.items()
                ]
                parts += [*files, _part(journal, opened)]
                try:
                    return BackedUp(max(last, seq), seq, copied(parts, to, on_progress))
                except DataError as error:
                    if seq == usable[-1][0]:
                        raise
                    logger.warning("%s: using the previous snapshot", error)
            if snapshots_in(folder) == numbered_paths:  # they were not replaced: they are damaged
                raise DataError(
                    f"{folder}: there is no intact snapshot, and the journal begins with delta "
                    f"{first}, so the folder cannot be backed up"
                )
    raise ResourceError(f"{folder}: its snapshots are replaced faster than they can be opened")


@dataclass
class BackupFile:
    """A file to copy, which is read once and verified at its end."""

    name: str  # in the folder, such as ``snapshot-3/about.json``
    file: IO[bytes]
    size: int
    digest: str | None = None  # expected SHA-256, if known
    on_read: Callable[[int], object] = lambda _: None  # called with the size of every piece

    def __post_init__(self) -> None:
        self._found, self._left = hashlib.sha256(), self.size

    def read(self, most: int = PIECE) -> bytes:
        """Return the next bytes; raise ``DataError`` if size or checksum turn out to be others."""
        piece = self.file.read(min(most, self._left))
        self._left -= len(piece)
        self._found.update(piece)
        self.on_read(len(piece))
        ended = not piece or not self._left
        if ended and (self._left or self.digest not in (None, self._found.hexdigest())):
            raise DataError(f"{self.name}: its contents have changed since it was written")
        return piece


def _part(path: Path, files: ExitStack, name: str = "", digest: str | None = None) -> BackupFile:
    file = files.enter_context(path.open("rb"))
    return BackupFile(name or path.name, file, os.fstat(file.fileno()).st_size, digest)


def _opened(path: Path, files: ExitStack) -> list[BackupFile]:
    """Return the open files of a snapshot; [] if it is gone or damaged."""
    try:
        facts_by_name = snapshot.read_manifest(path)["files"]
        digests = [
            (name, facts_by_name.get(name, {}).get("sha256")) for name in (STATE, ABOUT, MANIFEST)
        ]
        return [
            _part(path / name, files, f"{path.name}/{name}", digest) for name, digest in digests
        ]
    except (OSError, DataError) as error:
        if path.exists():
            logger.warning("%s: using the previous snapshot", error)
        return []


def copy_journal(source: Path, to: Path) -> None:
    """Copy a consistent state of a SQLite file that may be written to; the copy has no WAL."""
    if not source.exists():
        raise DataError(f"{source}: is missing: restore the folder from a backup")
    with (
        sound(source),
        closing(open_for_reading(source)) as original,
        closing(sqlite3.connect(to, isolation_level=None)) as copy,
    ):
        original.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the file is complete by itself


def copied(parts: list[BackupFile], to: Path, on_progress: OnProgress | None) -> int:
    """Copy files into a backup; return their size in bytes."""
    total, done = sum(part.size for part in parts), 0

    def on_read(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(COPY, done, total)

    for part in parts:
        part.on_read = on_read
    if is_tar(to):
        check_new(to)
        with scratch_beside(to) as aside, disk_is_enough(to):
            with (
                (aside / to.name).open("wb") as file,
                tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive,
            ):
                for part in parts:
                    about = tarfile.TarInfo(part.name)
                    about.size = part.size
                    archive.addfile(about, part)
            _rename(aside / to.name, to)
        return total
    with folder_aside(to) as aside:
        for part in parts:
            path = aside / part.name
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(part, file, PIECE)
    return total


def is_tar(path: Path) -> bool:
    """Whether a path names an archive."""
    return path.suffix == ".tar"


def check_new(path: Path) -> None:
    """Raise unless a path does not exist, or is an empty folder."""
    if path.exists() and (is_tar(path) or not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} exists already: name a new path or an empty folder")


@contextmanager
def folder_aside(to: Path) -> Iterator[Path]:
    """Yield an empty folder that is renamed to ``to`` once it is filled and on disk."""
    check_new(to)
    with scratch_beside(to) as aside, disk_is_enough(to):
        folder = aside / to.absolute().name
        folder.mkdir()
        yield folder
        _rename(folder, to)


def _rename(made: Path, to: Path) -> None:
    """Give a file or folder its name once all of it is on disk."""
    for path in (*made.rglob("*"), made):
        sync(path)
    made.rename(to)
    sync(to.absolute().parent)


def restore(source: Path, to: Path, *, on_progress: OnProgress | None = None) -> BackedUp:
    """Create a folder from a folder or .tar that ``backup`` wrote; return its contents.

    Every checksum is verified, and the folder is opened once, which replays the deltas after its
    snapshot. If anything is wrong, ``DataError`` is raised and nothing is created.
    """
    if not source.exists():
        raise DataError(f"{source}: does not exist")
    with folder_aside(to) as folder:
        if is_tar(source):
            _unpack(source, folder, on_progress)
        else:
            folder.rmdir()
            backup(source, folder, on_progress=on_progress)
        if markers.stored_parameters(folder) is None:
            raise DataError(f"the backup holds no {FORMAT_FILE}")
        for _, path in snapshots_in(folder):
            recovery.restored(path, maker_of(folder))
        on_delta = None if on_progress is None else partial(on_progress, VERIFY)
        for what in check_journal(folder / JOURNAL_FILE, on_delta):
            raise DataError(f"{folder / JOURNAL_FILE}: {what}")
        with LearnerFolder.open(folder, readonly=True) as opened:
            status = opened.status()
        for suffix in ("-wal", "-shm"):  # created by opening the journal
            (folder / f"{JOURNAL_FILE}{suffix}").unlink(missing_ok=True)
        return BackedUp(status.seq, status.snapshot, folder_bytes(folder))


def _unpack(archive: Path, folder: Path, on_progress: OnProgress | None) -> None:
    """Write the files of an archive into a folder; reject any that does not belong there."""
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
        raise DataError(f"{archive}: is not a complete tar archive ({error})") from None
