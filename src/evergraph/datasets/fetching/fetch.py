"""How a publisher's files are fetched: the sources, the retries and the checksums."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from evergraph.core.errors import DownloadError
from evergraph.core.extras import require
from evergraph.core.mapped import disk_is_enough
from evergraph.datasets.kept_folder import Pace

TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 18  # bytes written at a time

OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of a file, its bytes received so far, and its size if known."""


@dataclass(frozen=True)
class Fetch:
    """How to fetch files.

    Attributes:
        folder: a folder with the files, copied by hand; None to download them.
        sums: SHA-256 by file name or path; they take precedence over the catalogue.
        tries: attempts per address, with growing delays.
        on_progress: called with the progress; by default it is logged.
    """

    folder: Path | None = None
    sums: Mapping[str, str] = field(default_factory=dict)
    tries: int = 4
    on_progress: OnProgress | None = None

    def get(self, urls: Sequence[str], downloads: Path) -> Path:
        """Return a local path of the file at some addresses, downloaded to ``downloads``."""
        name = name_of(urls[0])
        if self.folder is not None:
            return self._found(name)
        split = [urlsplit(url) for url in urls]
        local = [Path(url2pathname(url.path)) for url in split if url.scheme == "file"]
        for path in local:
            if path.is_file():
                return path
        path = downloads / name
        far = [url for url in urls if urlsplit(url).scheme != "file"]
        if not far:
            raise DownloadError(f"{name} is not at {' or '.join(map(str, local))}")
        if not path.is_file():
            pace = Pace(f"downloading {name}")

            def logged(_: str, done: int, total: int | None) -> None:
                if total:
                    pace.tell(done, total)

            download(far, path, tries=self.tries, on_progress=self.on_progress or logged)
        return path

    def sum_of(self, *names: str) -> str | None:
        """Return the checksum given for a file by any of its names."""
        return next((self.sums[name] for name in names if name in self.sums), None)

    def _found(self, name: str) -> Path:
        """Return the file with that name in the folder or below it."""
        assert self.folder is not None
        if not self.folder.is_dir():
            raise DownloadError(f"{self.folder} is not a folder, so {name} cannot be read from it")
        for path in (self.folder / name, *sorted(self.folder.rglob(name))):
            if path.is_file():
                return path
        raise DownloadError(f"{name} is not in {self.folder} or a folder below it")


def name_of(url: str) -> str:
    """Return the file name in an address.

    >>> name_of("https://data.dgl.ai/dataset/reddit.zip")
    'reddit.zip'
    """
    return unquote(urlsplit(url).path).rpartition("/")[2]


def download(
    urls: Sequence[str], path: Path, *, tries: int = 4, on_progress: OnProgress | None = None
) -> None:
    """Fetch a file from the first address that sends it completely.

    The file appears complete or not at all: the remains of a failed attempt are removed.

    Args:
        urls: http or https addresses.
        path: destination of the complete file.
        tries: attempts per address.
        on_progress: called as bytes arrive.

    Raises:
        DownloadError: no address has sent it.
        ResourceError: the disk is full.
    """
    require("pooch", extra="pyg", why=f"downloading {path.name}")
    import pooch
    import requests

    told = None if on_progress is None else _Told(path.name, on_progress)
    downloader = pooch.HTTPDownloader(progressbar=told or False, chunk_size=_BLOCK, timeout=TIMEOUT)
    aside, reasons = path.with_name(f".{path.name}.partial"), []
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


def _said(error: Exception) -> str:
    """Return why a server did not send a file, without the wrapping of libraries."""
    inner: BaseException = error
    while (cause := getattr(inner, "reason", None) or next(iter(inner.args), None)) is not inner:
        if not isinstance(cause, BaseException):
            break
        inner = cause
    text = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
    return str(text).partition("\n")[0]


class _Told:
    """A progress bar for pooch that reports how much of a file has arrived."""

    def __init__(self, name: str, on_progress: OnProgress) -> None:
        self.total = 0
        self._name, self._on_progress = name, on_progress
        self._done = 0

    def update(self, count: int) -> None:
        """Count more bytes; the last block may be shorter."""
        self._done = min(self._done + count, self.total) if self.total else self._done + count
        self._on_progress(self._name, self._done, self.total or None)

    def reset(self) -> None:
        """Start again for the next file or attempt."""
        self._done = 0

    close = reset
