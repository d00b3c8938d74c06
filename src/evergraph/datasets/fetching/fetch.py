"""How a publisher's files are fetched: from where, with how much patience, held to which sums."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from evergraph.core.errors import DownloadError
from evergraph.core.sizes import shown
from evergraph.datasets.fetching.transfer import OnProgress, Patience, download

log = logging.getLogger(__name__)

EVERY = 10.0  # seconds between two lines of a log


@dataclass(frozen=True)
class Fetch:
    """How files are fetched.

    Attributes:
        folder: where they lie already, carried there by hand; None to download them.
        sums: SHA-256 by the name of a file, or by its path; they win over the catalogue's.
        patience: with servers.
        on_progress: told what has come; lines in the log unless given.
    """

    folder: Path | None = None
    sums: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)
    on_progress: OnProgress | None = None

    def get(self, urls: Sequence[str], downloads: Path) -> Path:
        """Return the file that some addresses name, on this disk: in ``downloads`` if it came."""
        name = name_of(urls[0])
        if self.folder is not None:
            return self._found(name)
        local = [_path_of(url) for url in urls if urlsplit(url).scheme == "file"]
        for path in local:
            if path.is_file():
                return path
        path = downloads / name
        far = [url for url in urls if urlsplit(url).scheme != "file"]
        if not far:
            raise DownloadError(f"{name} is not at {' nor at '.join(map(str, local))}")
        if not path.is_file():
            on_progress = self.on_progress or LoggedProgress()
            download(far, path, patience=self.patience, on_progress=on_progress)
        return path

    def sum_of(self, *names: str) -> str | None:
        """Return the sum that is given for a file, by any of its names."""
        return next((self.sums[name] for name in names if name in self.sums), None)

    def _found(self, name: str) -> Path:
        """Return the file of that name in the folder, or below it."""
        assert self.folder is not None
        if not self.folder.is_dir():
            raise DownloadError(f"{self.folder} is no folder to take {name} from")
        for path in (self.folder / name, *sorted(self.folder.rglob(name))):
            if path.is_file():
                return path
        raise DownloadError(f"{name} is not in {self.folder}, nor in a folder below it")


def name_of(url: str) -> str:
    """Return what the file of an address is called.

    >>> name_of("https://data.dgl.ai/dataset/reddit.zip")
    'reddit.zip'
    """
    return unquote(urlsplit(url).path).rpartition("/")[2]


def _path_of(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path))


class LoggedProgress:
    """Writes to the log, every ten seconds, how much has come and how long the rest will take."""

    def __init__(self) -> None:
        self._said = self._began = time.monotonic()
        self._first: int | None = None

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Take in how much has come."""
        now = time.monotonic()
        self._first = done if self._first is None else self._first
        if now - self._said >= EVERY:
            self._said = now
            log.info("%s", said(name, done, total, (done - self._first) / (now - self._began)))


def said(name: str, done: int, total: int | None, rate: float) -> str:
    """Return how far a download is, in one line.

    >>> said("arxiv.zip", 20_000_000, 80_000_000, 2_000_000)
    'arxiv.zip: 20 MB of 80 MB, 2.0 MB/s, about 30 s left'
    """
    of = "" if total is None else f" of {shown(total)}"
    left = "" if total is None or rate <= 0 else f", about {(total - done) / rate:.0f} s left"
    return f"{name}: {shown(done)}{of}, {rate / 1e6:.1f} MB/s{left}"
