"""A file fetched whole, by as many tries as it takes, in as many runs as it takes.

``NAME.part`` holds what is there, ``NAME.part.json`` of which version of the file it is. Whoever is
interrupted, killed or out of disk leaves both, and the next call asks for the rest.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.errors import DownloadError, ResourceError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.sizes import check_room, shown
from evergraph.core.written_aside import written_aside
from evergraph.datasets.fetching.request import Answer, Fault, ask

GOES_ON = "what has come is kept, and the same command goes on from there"
PROGRESS = 1 << 20  # bytes in one try after which tries are counted anew
UNREACHED = 2  # tries where no server has answered yet: there may be no network at all

OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of a file, how many of its bytes are there, and of how many if known."""


@dataclass(frozen=True)
class Patience:
    """How long to bear with a server.

    Attributes:
        tries: that may fail one after the other, each bringing less than a mebibyte.
        first_wait: seconds after the first of them; twice as long after each further one.
        most_wait: seconds to wait at the most.
        timeout: seconds without an answer, or without ``least_rate`` bytes each.
        least_rate: bytes a second, on average over ``timeout``.

    >>> [Patience().wait(failed) for failed in (1, 2, 3, 10)]
    [1.0, 2.0, 4.0, 60.0]
    """

    tries: int = 8
    first_wait: float = 1.0
    most_wait: float = 60.0
    timeout: float = 30.0
    least_rate: float = 1000.0

    def wait(self, failed: int) -> float:
        """Return how long to wait after so many tries that failed."""
        return min(self.first_wait * 2.0 ** (failed - 1), self.most_wait)


def download(
    urls: Sequence[str],
    path: Path,
    *,
    patience: Patience | None = None,
    on_progress: OnProgress = lambda name, done, total: None,
) -> None:
    """Fetch a file from the first of some addresses that sends it whole.

    Args:
        urls: where it is, http or https; one that was begun with is gone on with first.
        path: where it goes once it is whole.
        patience: how often and how long to try.
        on_progress: called as bytes come.

    Raises:
        DownloadError: no address has sent it; what came is kept.
        ResourceError: the disk is full; what came is kept.
    """
    patience = Patience() if patience is None else patience
    part, reasons = _Part(path), []
    for url in sorted(urls, key=lambda url: url != part.url):
        try:
            _fetch_from(url, part, patience, on_progress)
        except Fault as fault:
            reasons.append(f"{url}: {fault}")
        else:
            part.finish()
            return
    there = f" after {shown(part.size)}" if part.size else ""
    raise DownloadError(
        f"{path.name} could not be downloaded{there} ({'; '.join(reasons)}): {GOES_ON}"
    )


def _fetch_from(url: str, part: _Part, patience: Patience, on_progress: OnProgress) -> None:
    """Try one address until the file is whole, or until patience is at its end."""
    failed, reached = 0, bool(part.size)
    while not part.whole:
        before = part.size
        try:
            _try(url, part, patience, on_progress)
            return
        except Fault as fault:
            if fault.stale:
                part.discard()
            reached |= fault.reached
            failed = 1 if part.size - before >= PROGRESS else failed + 1
            if not fault.again or failed >= (patience.tries if reached else UNREACHED):
                raise
            time.sleep(max(patience.wait(failed), min(fault.wait, patience.most_wait)))


def _try(url: str, part: _Part, patience: Patience, on_progress: OnProgress) -> None:
    """Ask for what is missing, once."""
    start = part.size if part.version is not None or part.url == url else 0
    with ask(url, start=start, version=part.version, timeout=patience.timeout) as answer:
        part.begin(url, answer)
        for block in answer.blocks(timeout=patience.timeout, least_rate=patience.least_rate):
            part.append(block)
            on_progress(part.path.name, part.size, answer.total)
    if answer.total is not None and part.size != answer.total:
        raise Fault(f"cut off after {part.size:,} of {answer.total:,} bytes")


class _Part:
    """What is there of a file, and which version of the file it is of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = path.with_name(f"{path.name}.part")
        self._facts = path.with_name(f"{path.name}.part.json")
        with _disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        known = self._read_facts()
        self.url: str | None = known.get("url")
        self.version: str | None = known.get("version")
        self.total: int | None = known.get("total")
        if not known or (self.total is not None and self.size > self.total):
            self.discard()

    @property
    def size(self) -> int:
        """How many bytes are there."""
        return self._bytes.stat().st_size if self._bytes.exists() else 0

    @property
    def whole(self) -> bool:
        """Whether all of it is there, as far as the server told how long it is."""
        return self.total is not None and self.size == self.total

    def begin(self, url: str, answer: Answer) -> None:
        """Make ready for an answer: what is there goes, unless the answer begins at its end."""
        if answer.start:
            if self.total not in (None, answer.total):
                raise Fault("the file has another length on the server by now", stale=True)
            self.total = answer.total
            return
        self.discard()
        check_room(self.path.parent, answer.total or 0, f"{self.path.name}, which is downloaded,")
        self.url, self.version, self.total = url, answer.version, answer.total
        facts = {"url": url, "version": self.version, "total": self.total}
        with _disk(self.path), written_aside(self._facts) as file:
            file.write(json.dumps(facts).encode())

    def append(self, block: bytes) -> None:
        """Add what has come."""
        with _disk(self.path), self._bytes.open("ab", buffering=0) as file:
            view = memoryview(block)
            while len(view):
                view = view[file.write(view) :]

    def finish(self) -> None:
        """Give the file its name."""
        with _disk(self.path):
            with self._bytes.open("ab") as file:  # which makes an empty one, if that is the file
                os.fsync(file.fileno())
            self._bytes.replace(self.path)
            self._facts.unlink(missing_ok=True)

    def discard(self) -> None:
        """Throw away what is there."""
        self._bytes.unlink(missing_ok=True)  # first: bytes without facts are never gone on with
        self._facts.unlink(missing_ok=True)
        self.url = self.version = self.total = None

    def _read_facts(self) -> dict[str, Any]:
        try:
            known = json.loads(self._facts.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Say that a disk is full, and that this is not the end."""
    try:
        with disk_is_enough(path):
            yield
    except ResourceError as error:
        raise ResourceError(f"{error}: make room; {GOES_ON}") from error
