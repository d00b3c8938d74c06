"""Files on their way into a backup and out of it: a folder, or one tar archive.

Either is there whole or not at all: it is written aside, and has its name once the disk has it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import make_folders, written_aside
from evergraph.online.folder.columns_file import COLUMNS_FILE
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, FORMAT_FILE
from evergraph.online.folder.snapshot import ABOUT, MANIFEST, STATE, sync

PIECE = 1 << 20
COPY = "copy"  # the stage of progress
OnProgress = Callable[[str, int, int], None]
_SINGLE = {FORMAT_FILE, COLUMNS_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE}
_IN_SNAPSHOT = re.compile(rf"snapshot-\d{{1,19}}/({STATE}|{ABOUT}|{MANIFEST})")


@dataclass(frozen=True)
class Part:
    """A file that is copied.

    Attributes:
        name: in the folder, such as ``snapshot-3/about.json``.
        file: open to read, at its beginning.
        size: in bytes.
        digest: SHA-256 that it must have; None where that is not known.
    """

    name: str
    file: IO[bytes]
    size: int
    digest: str | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield the contents; raise ``DataError`` at the end if they are not what they must be."""
        digest, left = hashlib.sha256(), self.size
        while left and (piece := self.file.read(min(PIECE, left))):
            digest.update(piece)
            left -= len(piece)
            yield piece
        if left or self.digest not in (None, digest.hexdigest()):
            raise DataError(f"{self.name}: its contents have changed since it was written")


class Sink(Protocol):
    """What takes files."""

    def take(self, part: Part, told: Callable[[int], None]) -> None:
        """Copy a file; told: how many bytes more have been copied."""
        ...


class _IntoFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, part: Part, told: Callable[[int], None]) -> None:
        path = self._folder / part.name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            for piece in part.pieces():
                file.write(piece)
                told(len(piece))
        sync(path)
        sync(path.parent)


class _IntoTar:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def take(self, part: Part, told: Callable[[int], None]) -> None:
        about = tarfile.TarInfo(part.name)
        about.size = part.size
        self._file.write(about.tobuf(tarfile.GNU_FORMAT))
        for piece in part.pieces():
            self._file.write(piece)
            told(len(piece))
        self._file.write(bytes(-part.size % tarfile.BLOCKSIZE))


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


@contextmanager
def sink_at(to: Path) -> Iterator[Sink]:
    """Yield what takes the files of a backup; it is there once all are taken."""
    if not is_tar(to):
        with folder_aside(to) as aside:
            yield _IntoFolder(aside)
        return
    check_new(to)
    with disk_is_enough(to), written_aside(to) as file:
        yield _IntoTar(file)
        file.write(bytes(2 * tarfile.BLOCKSIZE))  # its end


def copied(parts: list[Part], to: Path, on_progress: OnProgress | None) -> int:
    """Copy files into a backup; return how many bytes these were."""
    total, done = sum(part.size for part in parts), 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(COPY, done, total)

    with sink_at(to) as sink:
        for part in parts:
            sink.take(part, told)
    return total


def unpacked(archive: Path, folder: Path, on_progress: OnProgress | None) -> None:
    """Write the files of an archive into a folder; refuse whatever is no file of a learner's."""
    total = archive.stat().st_size
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|") as members:
            for member in members:
                _unpack(members, member, folder)
                if on_progress is not None:
                    on_progress(COPY, raw.tell(), total)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{archive}: is no whole tar archive ({error})") from None


def _unpack(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    known = member.name in _SINGLE or _IN_SNAPSHOT.fullmatch(member.name)
    source = members.extractfile(member) if known and member.isreg() else None
    if source is None or (folder / member.name).exists():
        raise DataError(f"a backup must hold files of a learner's folder, not {member.name!r}")
    (folder / member.name).parent.mkdir(exist_ok=True)
    with source, (folder / member.name).open("xb") as file:
        shutil.copyfileobj(source, file, PIECE)
