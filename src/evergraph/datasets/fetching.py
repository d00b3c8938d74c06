"""Raw files of datasets: fetched, held to their checksums, unpacked, and moved into the cache.

The SHA-256 of every raw file is recorded after the first successful load, in the format of the
``sha256sum`` tool, and compared on each later load. Files are hashed in full every time: this
reads about 1 GB a second, a small part of the time to load the largest graphs, and detects changes
that keep a file's date.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from evergraph.core.errors import DataError, DownloadError, LockedError, WrongFileError
from evergraph.core.packages import require
from evergraph.core.safe_files import FileLock, disk_is_enough, is_held, written_aside
from evergraph.core.sizes import check_room
from evergraph.datasets.base import Facts
from evergraph.graphs.graph_folder import checksum
from evergraph.tables.sources import reason

log = logging.getLogger(__name__)
SUMS = "SHA256SUMS"
DOWNLOADS = "downloads"  # folder in the cache for unfinished downloads
TIMEOUT = 30.0  # seconds without a byte
MAKE_ROOM = "free some space, or set EVERGRAPH_CACHE to a folder on another disk"
_BLOCK = 1 << 18  # bytes written at a time
_SECONDS_BETWEEN_LINES = 10.0  # of progress
_SUM_AND_NAME = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(.+)")
# Exceptions of the publishers' readers if the network or a raw file fails.
FAILURES = (
    OSError,  # also URLError, timeouts, TLS, a full disk
    HTTPException,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    ValueError,
    KeyError,
    AttributeError,
    AssertionError,
)
T = TypeVar("T")
OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of a file, its bytes received so far, and its size if known."""


class ProgressLog:
    """Logs the progress and remaining time of a task, every ten seconds and at its end."""

    def __init__(self, task: str) -> None:
        self.task = task
        self._began = self._last_line = time.monotonic()

    def update(self, done: int, total: int) -> None:
        """Record how much of the work is done."""
        now = time.monotonic()
        if done >= total:
            log.info("%s: 100 %%, after %.0f s", self.task, now - self._began)
        elif done and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            seconds = (now - self._began) * (total - done) / done
            log.info("%s: %.0f %%, about %.0f s left", self.task, 100 * done / total, seconds)


def record(root: Path, files: Iterable[str]) -> None:
    """Write the checksums of ``files`` (paths below ``root``) to ``root/SHA256SUMS``."""
    lines = [f"{checksum(root / file)}  {file}\n" for file in files]
    with written_aside(root / SUMS) as sums:
        sums.write("".join(lines).encode())


def recorded(root: Path) -> dict[str, str]:
    """Return the checksums in ``root/SHA256SUMS``, empty if there is no such file."""
    return read_sums(root / SUMS) if (root / SUMS).exists() else {}


def read_sums(path: Path) -> dict[str, str]:
    """Return the checksums of a list in the format of ``sha256sum``, by file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a list of checksums ({error})") from None
    sums = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        matched = _SUM_AND_NAME.fullmatch(line.strip())
        if matched is None:
            raise DataError(
                f"{path}, line {number}: must be a SHA-256 of 64 hexadecimal digits, two spaces "
                f"and a file name, as sha256sum writes them, not {line!r}"
            )
        sums[matched[2]] = matched[1].lower()
    return sums


def verify(root: Path, files: Iterable[str], known: Mapping[str, str]) -> None:
    """Raise unless every file below ``root`` with a known SHA-256 has it."""
    for file in files:
        if file in known and (actual := checksum(root / file)) != known[file]:
            message = f"{root / file}: the SHA-256 is {actual}, but {known[file]} was expected"
            raise WrongFileError(message)


def set_aside(path: Path) -> Path:
    """Rename a wrong file, so that it can be inspected; return its new path."""
    aside = path.with_name(f"{path.name}.wrong")
    if path.exists():
        path.replace(aside)
    return aside


def not_readable(name: str, root: Path, error: BaseException) -> DataError:
    """Return an error for raw files that exist but cannot be read."""
    return DataError(
        f"the raw files of dataset {name!r} under {root} cannot be read ({reason(error)}): "
        f"delete that folder to download them again"
    )


@dataclass(frozen=True)
class Fetch:
    """How to fetch files."""

    folder: Path | None = None  # a folder with the files, copied by hand; None to download them
    # SHA-256 by file name or path; they take precedence over the catalogue
    sums: Mapping[str, str] = field(default_factory=dict)
    tries: int = 4  # attempts per address, with growing delays
    on_progress: OnProgress | None = None  # called with the progress; by default it is logged

    def get(self, urls: Sequence[str], downloads: Path) -> Path:
        """Return a local path of the file at some addresses, downloaded to ``downloads``."""
        name = unquote(urlsplit(urls[0]).path).rpartition("/")[2]
        if self.folder is not None:
            if not self.folder.is_dir():
                message = f"{self.folder} is not a folder, so {name} cannot be read from it"
                raise DownloadError(message)
            for path in (self.folder / name, *sorted(self.folder.rglob(name))):
                if path.is_file():
                    return path
            raise DownloadError(f"{name} is not in {self.folder} or a folder below it")
        remote = [url for url in urls if urlsplit(url).scheme != "file"]
        local = [Path(url2pathname(urlsplit(url).path)) for url in urls if url not in remote]
        for path in (*local, downloads / name):
            if path.is_file():
                return path
        if not remote:
            raise DownloadError(f"{name} is not at {' or '.join(map(str, local))}")
        pace = ProgressLog(f"downloading {name}")

        def logged(_: str, done: int, total: int | None) -> None:
            if total:
                pace.update(done, total)

        download(remote, downloads / name, tries=self.tries, on_progress=self.on_progress or logged)
        return downloads / name

    def sum_of(self, *names: str) -> str | None:
        """Return the checksum given for a file by any of its names."""
        return next((self.sums[name] for name in names if name in self.sums), None)


def download(
    urls: Sequence[str], path: Path, *, tries: int = 4, on_progress: OnProgress | None = None
) -> None:
    """Fetch a file from the first address that sends it completely.

    The file appears complete or not at all: the remains of a failed attempt are removed.

    tries: attempts per address.

    Raises:
        DownloadError: no address has sent it.
        ResourceError: the disk is full.
    """
    require("pooch", extra="pyg", why=f"downloading {path.name}")
    import pooch
    import requests

    bar = None if on_progress is None else _ProgressBar(path.name, on_progress)
    downloader = pooch.HTTPDownloader(progressbar=bar or False, chunk_size=_BLOCK, timeout=TIMEOUT)
    aside = path.with_name(f".{path.name}.partial")
    reasons = []
    for url in urls:
        shutil.rmtree(aside, ignore_errors=True)  # left by a killed process
        source = pooch.create(
            aside, "", registry={path.name: None}, urls={path.name: url}, retry_if_failed=tries - 1
        )
        try:
            with disk_is_enough(path):
                Path(source.fetch(path.name, downloader=downloader)).replace(path)
            return
        except requests.RequestException as error:
            reasons.append(f"{url}: {_said(error)}")
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    raise DownloadError(f"{path.name} could not be downloaded ({'; '.join(reasons)})")


def _said(error: BaseException) -> str:
    """Return why a server did not send a file, without the wrapping of libraries."""
    while (cause := getattr(error, "reason", None) or next(iter(error.args), None)) is not error:
        if not isinstance(cause, BaseException):
            break
        error = cause
    return reason(OSError(getattr(error, "strerror", None) or str(error) or type(error).__name__))


class _ProgressBar:
    """A progress bar for pooch that reports how much of a file has arrived."""

    def __init__(self, name: str, on_progress: OnProgress) -> None:
        self.total = self._done = 0
        self._name, self._on_progress = name, on_progress

    def update(self, count: int) -> None:
        """Count more bytes; the last block may be shorter."""
        self._done = min(self._done + count, self.total) if self.total else self._done + count
        self._on_progress(self._name, self._done, self.total or None)

    def reset(self) -> None:
        """Start again for the next file or attempt."""
        self._done = 0

    close = reset


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a dataset."""

    name: str  # name of the dataset
    files: tuple[str, ...]  # their paths below ``root``
    root: Path  # the dataset's folder in the cache
    facts: Facts | None  # the catalogue's facts, None if it has none

    @property
    def are_cached(self) -> bool:
        """Whether all of them are in the cache."""
        return all((self.root / file).is_file() for file in self.files)

    def check(self, how: Fetch | None) -> bool:
        """Whether all of them are in the cache with the right checksums.

        A wrong checksum is an error. If ``how`` is given, all files are set aside instead, to be
        fetched again.
        """
        if not self.are_cached:
            return False
        try:
            verify(self.root, self.files, self._known(how or Fetch()))
        except WrongFileError as error:
            if how is None:
                raise DataError(f"{error}: delete {self.root} to download it again") from None
            log.warning("%s: it is set aside and fetched again", error)
            for file in self.files:
                set_aside(self.root / file)
        return self.are_cached

    @contextmanager
    def locked(self) -> Iterator[None]:
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
        if self.are_cached or self.facts is None or not self.facts.urls:
            return 0
        return self.facts.room - (self.facts.download if how.folder is not None else 0)

    def _fetch(self, how: Fetch, read: Callable[[Path], T]) -> T:
        if self.facts is None or not self.facts.urls:
            raise DownloadError("the catalogue has no address for it")
        check_room(self.root.parent, self.room(how), f"dataset {self.name!r}", remedy=MAKE_ROOM)
        file = how.get(self.facts.urls, self._downloads)
        is_download = file.parent == self._downloads
        log.info("checking and reading %s", file.name)
        known_sum = how.sum_of(f"{self.name}/{file.name}", file.name)
        expected = known_sum or self.facts.sha256.get(file.name)
        try:
            if expected is None:
                log.info("%s: the SHA-256 is %s", file.name, checksum(file))
            else:
                verify(file.parent, [file.name], {file.name: expected})
            try:
                result = self._moved_in(file, how, read)
            except DataError as error:
                # Of published bytes, which have their checksum, another copy would not help.
                if isinstance(error, WrongFileError) or expected is not None:
                    raise
                raise WrongFileError(str(error)) from error
        except WrongFileError as error:
            if not is_download:
                raise
            raise WrongFileError(f"{error}: it is kept as {set_aside(file).name}") from error
        if is_download:
            set_aside(file).unlink()  # in place of one that was wrong before
        return result

    def _moved_in(self, file: Path, how: Fetch, read: Callable[[Path], T]) -> T:
        """Unpack, check and read the files in a folder aside, and move them in if all is well."""
        parent = self.root.parent
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{self.name}-") as folder:
            aside = Path(folder)
            unpack(file, self.files, aside)
            verify(aside, self.files, self._known(how))
            result = read(aside)
            with disk_is_enough(self.root):
                for path in self.files:
                    (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                    (aside / path).replace(self.root / path)
        return result

    def _known(self, how: Fetch) -> dict[str, str]:
        """Return checksums by path: those given, else the catalogue's, else those recorded."""
        known = recorded(self.root) | ({} if self.facts is None else dict(self.facts.sha256))
        for file in self.files:
            if (chosen := how.sum_of(f"{self.name}/{file}", file)) is not None:
                known[file] = chosen
        return known

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
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
    if source.suffix != ".zip":
        (file,) = files
        with disk_is_enough(folder / file):
            shutil.copyfile(source, folder / file)
        return
    try:
        with zipfile.ZipFile(source) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            by_name = {Path(member.filename).name: member for member in reversed(members)}
            by_name |= {member.filename: member for member in members}
            for file in files:
                if file not in by_name and Path(file).name not in by_name:
                    message = f"{source}: does not contain {file}, but {len(members)} other files"
                    raise WrongFileError(message)
            to_unpack = {file: by_name.get(file) or by_name[Path(file).name] for file in files}
            check_room(folder, sum(m.file_size for m in to_unpack.values()), source.name)
            for file, member in to_unpack.items():
                path = folder / file
                with disk_is_enough(path), archive.open(member) as packed, path.open("wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 20)  # checks the CRC at the end
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise WrongFileError(f"{source}: is not a complete zip archive ({error})") from error
