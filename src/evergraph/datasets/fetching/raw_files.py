"""The raw files of a dataset: download, checksum, and move into the cache."""

from __future__ import annotations

import logging
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from evergraph.core.errors import DataError, DownloadError, LockedError, WrongFileError
from evergraph.core.file_lock import FileLock, is_held
from evergraph.core.mapped import disk_is_enough
from evergraph.core.sizes import check_room
from evergraph.datasets.catalogue import Facts
from evergraph.datasets.download import check_sum, recorded, set_aside, sha256, verify
from evergraph.datasets.fetching.fetch import Fetch
from evergraph.tables.sources import reason

log = logging.getLogger(__name__)

DOWNLOADS = "downloads"  # folder in the cache for unfinished downloads
_BLOCK = 1 << 20
MAKE_ROOM = "free some space, or set EVERGRAPH_CACHE to a folder on another disk"
T = TypeVar("T")


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a dataset.

    Attributes:
        name: name of the dataset.
        files: their paths below ``root``.
        root: the dataset's folder in the cache.
        facts: the catalogue's facts, None if it has none.
    """

    name: str
    files: tuple[str, ...]
    root: Path
    facts: Facts | None

    @property
    def there(self) -> bool:
        """Whether all of them are in the cache."""
        return all((self.root / file).is_file() for file in self.files)

    def check(self, how: Fetch | None) -> bool:
        """Whether all of them are in the cache with the right checksums.

        A wrong checksum is an error. If ``how`` is given, all files are set aside instead, to be
        fetched again.
        """
        if not self.there:
            return False
        try:
            verify(self.root, self.files, self._expected(Fetch() if how is None else how))
        except WrongFileError as error:
            if how is None:
                raise DataError(f"{error}: delete {self.root} to download it again") from None
            log.warning("%s: it is set aside and fetched again", error)
            for file in self.files:
                set_aside(self.root / file)
        return self.there

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one process at a time fetch them; others wait."""
        path = self._downloads / f"{self.name}.lock"
        try:
            self._downloads.mkdir(parents=True, exist_ok=True)
            if is_held(path):
                log.info("dataset %s is being fetched by another process: waiting", self.name)
            lock = FileLock(path, LockedError, wait=True)
        except OSError as error:
            raise self._not_fetched(error) from error
        with lock:
            yield

    def fetch(self, how: Fetch, read: Callable[[Path], T]) -> T:
        """Fetch them, a second time if they are wrong, and return the result of ``read``."""
        log.info("fetching dataset %s into %s", self.name, self.root)
        try:
            try:
                return self._fetch(how, read)
            except WrongFileError as error:
                if how.folder is not None:
                    raise
                log.warning("%s, and it is fetched once more", error)
            return self._fetch(how, read)
        except (DownloadError, OSError) as error:
            raise self._not_fetched(error) from error

    def room(self, how: Fetch) -> int:
        """Return the additional disk space needed in bytes, about; 0 if unknown."""
        if self.there or self.facts is None or not self.facts.urls:
            return 0
        if how.folder is not None:
            return self.facts.room - self.facts.download
        return self.facts.room

    def _fetch(self, how: Fetch, read: Callable[[Path], T]) -> T:
        if self.facts is None or not self.facts.urls:
            raise DownloadError("the catalogue has no address for it")
        check_room(self.root.parent, self.room(how), f"dataset {self.name!r}", remedy=MAKE_ROOM)
        file = how.get(self.facts.urls, self._downloads)
        ours = file.parent == self._downloads
        log.info("checking and reading %s", file.name)
        given = how.sum_of(f"{self.name}/{file.name}", file.name)
        expected = given or self.facts.sha256.get(file.name)
        try:
            if expected is not None:
                check_sum(file, expected)
            else:
                log.info("%s: the SHA-256 is %s", file.name, sha256(file))
            try:
                found = self._moved_in(file, how, read)
            except DataError as error:
                # Of published bytes, which have their checksum, another copy would not help.
                if isinstance(error, WrongFileError) or expected is not None:
                    raise
                raise WrongFileError(str(error)) from error
        except WrongFileError as error:
            if not ours:
                raise
            raise WrongFileError(f"{error}: it is kept as {set_aside(file).name}") from error
        if ours:
            set_aside(file).unlink()  # in place of one that was wrong before
        return found

    def _moved_in(self, file: Path, how: Fetch, read: Callable[[Path], T]) -> T:
        parent = self.root.parent
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{self.name}-") as folder:
            aside = Path(folder)
            unpack(file, self.files, aside)
            verify(aside, self.files, recorded(self.root) | self._expected(how))
            found = read(aside)
            with disk_is_enough(self.root):
                for path in self.files:
                    (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                    (aside / path).replace(self.root / path)
        return found

    def _expected(self, how: Fetch) -> dict[str, str]:
        """Return the expected checksums by path."""
        pinned = {} if self.facts is None else dict(self.facts.sha256)
        given = {file: how.sum_of(f"{self.name}/{file}", file) for file in self.files}
        return pinned | {file: known for file, known in given.items() if known is not None}

    def _not_fetched(self, error: Exception) -> DownloadError:
        source = "its publisher" if self.facts is None else self.facts.source
        return DownloadError(
            f"dataset {self.name!r} could not be fetched from {source} ({reason(error)}): "
            f"try again with a network, or put {', '.join(self.files)} under {self.root}"
        )

    @property
    def _downloads(self) -> Path:
        return self.root.parent / DOWNLOADS


def unpack(source: Path, files: Sequence[str], folder: Path) -> None:
    """Put raw files below a folder, from a publisher's archive or single file.

    Only the named files are extracted, to their own paths, so an archive cannot write anywhere
    else. A member matches by its path or by its name alone.
    """
    if source.suffix != ".zip":
        (file,) = files
        with disk_is_enough(folder / file):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / file)
        return
    try:
        with zipfile.ZipFile(source) as archive:
            members = {file: _member(archive, file, source) for file in files}
            check_room(folder, sum(m.file_size for m in members.values()), source.name)
            for file, member in members.items():
                with disk_is_enough(folder / file):
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as packed, (folder / file).open("wb") as out:
                        shutil.copyfileobj(packed, out, _BLOCK)  # checks the CRC at the end
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise WrongFileError(f"{source}: is not a complete zip archive ({error})") from error


def _member(archive: zipfile.ZipFile, file: str, source: Path) -> zipfile.ZipInfo:
    listed = [member for member in archive.infolist() if not member.is_dir()]
    for known in (lambda name: name == file, lambda name: Path(name).name == Path(file).name):
        for member in listed:
            if known(member.filename):
                return member
    raise WrongFileError(f"{source}: does not contain {file}, but {len(listed)} other files")
