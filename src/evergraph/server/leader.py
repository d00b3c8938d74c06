"""A service somewhere else that this one follows: its snapshot, its journal, how far it is."""

from __future__ import annotations

import json
import logging
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    DroppedError,
    ResourceError,
    StoppedError,
)
from evergraph.online.codecs.delta_bytes import digest_of
from evergraph.online.folder.columns_file import COLUMNS_FILE, store_columns
from evergraph.online.folder.entries import JournalEntry, entries_from_bytes
from evergraph.online.folder.following import begin_with_snapshot
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import FORMAT_FILE, parse_format, stored_parameters
from evergraph.server.client import opener, refusal_of, sentence_in
from evergraph.server.handing_on import SEQ, SET_ASIDE

if TYPE_CHECKING:
    from evergraph.datasets.columns.scheme import Scheme
    from evergraph.server.service import Service

WAIT = 10.0  # seconds that one question for the journal lasts where nothing comes
AGAIN = 1.0  # seconds until a leader that does not answer is asked again
log = logging.getLogger(__name__)


@dataclass
class Leader:
    """Where a follower's deltas come from.

    Attributes:
        url: where it listens.
        token: one that may follow, if it asks for any.
        seconds: how long to wait for an answer.
        ca: PEM file of the authority that signed its certificate, in place of the system's.
        seq: how many deltas it knew when it last answered.
        set_aside: number and checksum of deltas that it has set aside.
        caught_up: whether its follower has known all of them once.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    seconds: float = 60.0
    ca: Path | None = None
    seq: int = 0
    set_aside: frozenset[tuple[int, str]] = frozenset()
    _level: float = field(default_factory=time.monotonic)
    caught_up: bool = False
    _silent: bool = False

    def __post_init__(self) -> None:
        self._open = opener(self.url, self.ca)

    def journal(self, after: int, *, wait: float) -> list[JournalEntry]:
        """Return the deltas after one, in whole batches; none if none comes in that time."""
        with self._asked(f"/v1/journal?after={after}&wait={wait:g}") as answer:
            self.seq = int(answer.headers[SEQ])
            self.set_aside = _set_aside(answer.headers.get(SET_ASIDE, ""))
            return entries_from_bytes(answer.read())

    def parameters(self) -> dict[str, Any]:
        """Return what its learner was made with."""
        with self._asked("/v1/snapshot") as answer, _members(answer) as archive:
            return _parameters(archive)

    def snapshot(self, into: Path) -> tuple[dict[str, Any], Path | None]:
        """Fetch its newest snapshot into a folder; return what its learner was made with, too."""
        into.mkdir(parents=True)
        found = None
        with self._asked("/v1/snapshot") as answer, _members(answer) as archive:
            made_with = _parameters(archive)
            while (member := archive.next()) is not None:
                found = into / _plain(member.name, parts=2).split("/")[0]
                found.mkdir(exist_ok=True)
                source = archive.extractfile(member)
                assert source is not None, "a plain file"
                with source, (into / member.name).open("wb") as file:
                    shutil.copyfileobj(source, file)
        return made_with, found

    def columns(self) -> Scheme | None:
        """Return how it reads columns; None: as plain numbers."""
        from evergraph.datasets.columns.scheme import Scheme

        with self._asked("/v1/columns") as answer:
            kept = json.load(answer)["scheme"]
        return None if kept is None else Scheme.from_json(kept)

    @contextmanager
    def _asked(self, path: str) -> Iterator[HTTPResponse]:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            with self._open(Request(self.url.rstrip("/") + path, headers=headers),
                            timeout=self.seconds) as answer:  # fmt: skip
                yield answer
        except HTTPError as error:
            with error:
                raise refusal_of(error.code, f"{self.url}: {sentence_in(error.read())}") from None
        except (URLError, HTTPException, OSError, tarfile.TarError) as error:
            raise ResourceError(f"{self.url}: no service answers ({error})") from error

    def behind(self, seq: int) -> tuple[int, float]:
        """Return by how many deltas a follower is behind, and for how many seconds."""
        lag, now = max(self.seq - seq, 0), time.monotonic()
        return lag, round(now - self._level, 3) if lag or self._silent else 0.0

    def note(self, seq: int) -> None:
        """Note how far a follower is, after an answer."""
        if self._silent:
            log.info("%s answers again", self.url)
        self._silent = False
        if seq >= self.seq:
            self.caught_up = True
            self._level = time.monotonic()

    def miss(self, error: Exception) -> None:
        """Note that it does not answer."""
        if not self._silent:
            log.warning("%s; answers are those from before, and it is asked again", error)
        self._silent = True


class LeaderSteps:
    """Follows the journal of a leader into the folder of this service.

    Args:
        service: that of a folder opened to write.
        leader: whom it follows.
    """

    def __init__(self, service: Service, leader: Leader, *, wait: float = WAIT) -> None:
        self._service = service
        self._leader = leader
        self._wait = wait
        self._compared = False
        self._set_aside: frozenset[tuple[int, str]] = frozenset()

    def __call__(self) -> float:
        """Take in what is new; return when to ask again."""
        folder, leader = self._service.folder, self._leader
        try:
            self._compare()
            entries = leader.journal(folder.seq, wait=self._wait)
            if entries and not folder.learner.status().features:
                folder.keep_columns(leader.columns())  # settled by now, and before the first nodes
        except ResourceError as error:
            leader.miss(error)
            self._compared = False  # it may have set aside what it had told before
            return AGAIN
        self._compare_set_aside()
        if leader.seq < folder.seq:
            raise DataError(
                f"{folder.path} must follow the service that it began with: it knows {folder.seq} "
                f"deltas, and {leader.url} only {leader.seq}"
            )
        if entries:
            try:
                folder.take_entries(entries)
            except StoppedError:  # which says so, and tries to go on by itself
                return AGAIN
            self._service.turn()
        leader.note(folder.seq)
        return 0.0

    def _compare(self) -> None:
        """Raise once where the last delta here is another one there.

        Where only a snapshot holds it any more, here or there, it cannot be compared.
        """
        folder, leader = self._service.folder, self._leader
        if self._compared or not folder.seq:
            return
        own = folder.batch_with(folder.seq)
        try:
            others = leader.journal(own[0].seq - 1, wait=0.0) if own else []
        except DroppedError:
            others = []
        self._compared = True
        if others and _told(own) != _told(others[: len(own)]):
            raise DataError(
                f"{folder.path} must follow the service that it began with: delta {folder.seq} of "
                f"{leader.url} is another one"
            )

    def _compare_set_aside(self) -> None:
        """Raise where a delta is known here that the leader has set aside.

        Where only a snapshot holds it any more, it cannot be compared.
        """
        folder, leader = self._service.folder, self._leader
        for seq, digest in leader.set_aside - self._set_aside:
            own = [entry for entry in folder.batch_with(seq) if entry.seq == seq]
            if own and digest_of(own[0].data).hex() == digest:
                raise DataError(
                    f"{leader.url} has set aside delta {seq}, which {folder.path} knows: move that "
                    "folder away, and it begins anew with a snapshot"
                )
        self._set_aside = leader.set_aside


def _told(entries: Sequence[JournalEntry]) -> list[tuple[int, bytes]]:
    """Return what must be the same of deltas that are."""
    return [(entry.batch, entry.data) for entry in entries]


def _set_aside(text: str) -> frozenset[tuple[int, str]]:
    """Return number and checksum of the deltas that a leader names.

    >>> sorted(_set_aside("3:ab,5:cd"))
    [(3, 'ab'), (5, 'cd')]
    """
    pairs = (each.split(":") for each in text.split(",") if each)
    return frozenset((int(seq), digest) for seq, digest in pairs)


def follower_folder(path: Path, leader: Leader, **opening: Any) -> LearnerFolder:
    """Open the folder of a follower; where there is none, begin with the leader's snapshot.

    A folder that is there is opened even where the leader does not answer. opening: as in
    ``LearnerFolder.of``.
    """
    if stored_parameters(path) is None:
        return LearnerFolder.of(path, _begun(path, leader), **opening)
    try:
        given = leader.parameters()
        if not (path / COLUMNS_FILE).exists() and (scheme := leader.columns()) is not None:
            store_columns(path, scheme)
    except ResourceError as error:
        leader.miss(error)
        given = {}
    return LearnerFolder.of(path, given, **opening)


def _begun(path: Path, leader: Leader) -> dict[str, Any]:
    """Fetch a snapshot into a new folder; return what the learner is made with."""
    aside = path.with_name(f".{path.name}-fetched")
    shutil.rmtree(aside, ignore_errors=True)  # what a killed process left
    try:
        parameters, snapshot = leader.snapshot(aside)
        if snapshot is not None:
            begin_with_snapshot(path, snapshot, parameters)
            scheme = leader.columns()
            if scheme is not None:
                store_columns(path, scheme)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return parameters


@contextmanager
def _members(answer: HTTPResponse) -> Iterator[tarfile.TarFile]:
    with tarfile.open(fileobj=answer, mode="r|") as archive:
        yield archive


def _parameters(archive: tarfile.TarFile) -> dict[str, Any]:
    """Read the first file of an archive."""
    first = archive.next()
    file = None if first is None or first.name != FORMAT_FILE else archive.extractfile(first)
    if file is None:
        raise DataError(f"a leader's archive must begin with {FORMAT_FILE}")
    return parse_format(file.read(), Path(FORMAT_FILE))[1]


def _plain(name: str, *, parts: int) -> str:
    """Return a name in an archive; refuse one that leads elsewhere.

    >>> _plain("snapshot-3/about.json", parts=2)
    'snapshot-3/about.json'
    """
    pieces = name.split("/")
    if len(pieces) != parts or any(p in ("", ".", "..") for p in pieces) or "\\" in name:
        raise ConfigurationError(f"a leader's archive must hold files of a snapshot, not {name!r}")
    return name
