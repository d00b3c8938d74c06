"""Talking to a service from another process."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPException
from pathlib import Path
from ssl import SSLCertVerificationError, create_default_context
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from evergraph.core.errors import ConfigurationError, DataError, DroppedError, ResourceError
from evergraph.server.http import ARROW, JSON

if TYPE_CHECKING:
    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.online.delta import Delta, Label, NodeId
    from evergraph.online.folder.backup import BackedUp
    from evergraph.online.upsert import EdgesBeyond
    from evergraph.tables import Encoder, Scheme

TRIES = 8
IDS = 10_000  # in one question
LONGEST = 20.0  # seconds between two tries


class Client:
    """A service somewhere else.

    What was refused for being busy is sent again after a while. A change is sent with its key, so
    that one whose answer was lost counts once.

    Args:
        url: where it listens, such as ``http://127.0.0.1:8000``.
        token: of its token file, if it has one.
        seconds: how long to wait for an answer.
        ca: PEM file of the authority that signed its certificate, in place of the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        seconds: float = 60.0,
        ca: Path | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.seconds = seconds
        self._open = opener(url, ca)
        self._scheme: Scheme | None = None

    def submit(self, delta: Delta) -> dict[str, Any]:
        """Send a change and return what became of it."""
        from evergraph.server.arrow import arrow_from_delta

        headers = {} if delta.key is None else {"Idempotency-Key": delta.key}
        done = self._ask("/v1/deltas", arrow_from_delta(delta, self._scheme), ARROW, headers)
        self._scheme = None if len(delta.nodes) else self._scheme
        return done

    def knows_nodes(self, ids: Sequence[NodeId]) -> list[bool]:
        """Return which ids are those of known nodes, of which it asks for all."""
        known = frozenset(self.every_id())
        return [node in known for node in ids]

    def edges_beyond(self, *dump: Any) -> EdgesBeyond:
        """Raise: a service does not list its edges."""
        raise ConfigurationError(
            f"--sync compares edges in a folder only, and {self.url} is a service: give --nodes "
            "alone, or a column 'op' that says which edges go"
        )

    def unknown(self, deltas: TableDeltas) -> tuple[TableDeltas, int]:
        """Return deltas as they are: the service is sent all edges and finds those that are new."""
        return deltas, 0

    def columns(self, encoders: Iterable[Encoder] = ()) -> Scheme | None:
        """Return how the service's learner reads columns; None where it takes plain numbers."""
        from evergraph.tables.scheme import Scheme

        kept = self._ask("/v1/columns", None, JSON, {})["scheme"]
        return None if kept is None else Scheme.from_json(kept, encoders)

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Send how columns are read with the next nodes: the first settle it, others must agree."""
        self._scheme = scheme

    def upsert(self, delta: Delta) -> dict[str, Any]:
        """Send what may be known in part, and return what of it was new; sent twice counts once."""
        from evergraph.server.arrow import arrow_from_delta

        done = self._ask("/v1/upsert", arrow_from_delta(delta, self._scheme), ARROW, {})
        self._scheme = None if len(delta.nodes) else self._scheme
        return done

    def predict(self, ids: Sequence[NodeId], *, after: int = 0) -> list[dict[str, Any]]:
        """Return the predictions for nodes, in their order; many are asked for some at a time.

        after: the ``seq`` of a change that they must know; whoever has just made one, and asks a
        process that only reads, reads what it wrote.
        """
        path = f"/v1/predictions?after={after}" if after else "/v1/predictions"
        found: list[dict[str, Any]] = []
        for start in range(0, len(ids), IDS):
            some = json.dumps({"ids": list(ids[start : start + IDS])}).encode()
            found += self._ask(path, some, JSON, {})["predictions"]
        return found

    def every_id(self) -> list[NodeId]:
        """Return the ids of all nodes, asked for some at a time."""
        return self._paged("ids")

    def classes(self) -> list[Label]:
        """Return the names of all classes, asked for some at a time."""
        return self._paged("classes")

    def _paged(self, what: str) -> list[Any]:
        found: list[Any] = []
        start: int | None = 0
        while start is not None:
            told = self._ask(f"/v1/{what}?start={start}&limit={IDS}", None, JSON, {})
            found += told[what]
            start = told["next"]
        return found

    def last_key(self, prefix: str) -> str | None:
        """Return the key of the newest change whose key begins so, if there is one."""
        told = self._ask(f"/v1/keys?{urlencode({'prefix': prefix})}", None, JSON, {})
        key: str | None = told["key"]
        return key

    def suggest(self, n: int) -> list[dict[str, Any]]:
        """Return nodes worth asking a person about, and why."""
        found: list[dict[str, Any]] = self._ask(f"/v1/suggestions?n={n}", None, JSON, {})[
            "suggestions"
        ]
        return found

    def explain(self, node: str, *, integer: bool, limit: int) -> dict[str, Any]:
        """Return a node's prediction taken apart, with what lies around it.

        integer: whether the id is one, not text; limit: how many nodes are told of.
        """
        asked = urlencode({"integer": integer, "limit": limit})
        return self._ask(f"/v1/nodes/{quote(node, safe='')}?{asked}", None, JSON, {})

    def compact(self, *, now: bool, keys: bool, names: bool) -> dict[str, Any]:
        """Have the folder compacted; see ``CompactBody``."""
        asked = {"now": now, "keys": keys, "names": names}
        return self._ask("/v1/compact", json.dumps(asked).encode(), JSON, {})

    def backup(self, to: Path) -> BackedUp:
        """Fetch a backup, made by the service as of one delta.

        to: a new folder, whose contents are verified, or a new file that ends in .tar; there once
        it is whole.
        """
        from evergraph.core.mapped import disk_is_enough
        from evergraph.online.folder.backup import BackedUp, check_new, is_tar, restore

        check_new(to)
        with disk_is_enough(to):
            to.absolute().parent.mkdir(parents=True, exist_ok=True)
            aside = tempfile.TemporaryDirectory(
                dir=to.absolute().parent, prefix=".evergraph-backup-"
            )
        with aside as name:
            archive = Path(name) / "backup.tar"
            said = self._fetch("/v1/backup", archive).split()
            if not is_tar(to):
                return restore(archive, to)
            archive.rename(to)
            return BackedUp(*(int(number) for number in said))

    def _fetch(self, path: str, to: Path) -> str:
        """Write an answer to a file; return what its header says of it."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            with (
                self._open(Request(self.url + path, headers=headers), timeout=3600) as answer,
                to.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
                found = str(answer.headers["x-evergraph-backup"])
                length = int(answer.headers["content-length"])
        except HTTPError as error:
            with error:
                raise refusal_of(error.code, f"{self.url}: {sentence_in(error.read())}") from None
        except (URLError, HTTPException, OSError) as error:
            raise ResourceError(f"{self.url}: no service answers ({error})") from error
        if to.stat().st_size != length:
            raise ResourceError(f"{self.url}: the backup ended before it was whole")
        return found

    def alarms(self) -> list[dict[str, Any]]:
        """Return what is no longer as it was, and the latest of what was so."""
        found: list[dict[str, Any]] = self._ask("/v1/alarms", None, JSON, {})["alarms"]
        return found

    def status(self) -> dict[str, Any]:
        """Return what the learner knows."""
        return self._ask("/v1/status", None, JSON, {})

    def _ask(
        self, path: str, body: bytes | None, kind: str, headers: dict[str, str]
    ) -> dict[str, Any]:
        if self.token is not None:
            headers = headers | {"Authorization": f"Bearer {self.token}"}
        request = Request(self.url + path, body, {"Content-Type": kind} | headers)
        for again in range(TRIES):
            wait = min(LONGEST, 0.25 * 2**again)
            try:
                with self._open(request, timeout=self.seconds) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except HTTPError as error:
                with error:
                    sentence = sentence_in(error.read())
                if error.code not in (429, 503) or again == TRIES - 1:
                    raise refusal_of(error.code, f"{self.url}: {sentence}") from None
            except (URLError, HTTPException, OSError) as error:
                if again == TRIES - 1 or _is_nobody(error):
                    raise ResourceError(f"{self.url}: no service answers ({error})") from error
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")


def is_url(text: str) -> bool:
    """Whether a target is a service, not a folder.

    >>> is_url("http://127.0.0.1:8000"), is_url("runs/learner")
    (True, False)
    """
    return urlsplit(text).scheme in ("http", "https")


def opener(url: str, ca: Path | None = None) -> Callable[..., Any]:
    """Return what opens a URL of a service, as ``urllib.request.urlopen`` does.

    It goes nowhere else where the answer sends it: it would take the token along.
    """
    if ca is not None and urlsplit(url).scheme != "https":
        raise ConfigurationError(f"ca is for a service at an https URL, not {url!r}")
    if urlsplit(url).scheme != "https":
        return build_opener(_Staying).open
    try:
        believed = create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"{ca}: the file of the authority must hold certificates as PEM ({error})"
        ) from None
    return build_opener(_Staying, HTTPSHandler(context=believed)).open


class _Staying(HTTPRedirectHandler):
    """Follows nobody: a redirect is an answer like any other that is not 200."""

    def redirect_request(self, *_: Any) -> None:
        """Return no other request."""


def sentence_in(body: bytes) -> str:
    """Return what a refusal says.

    >>> sentence_in(b'{"error": "too late"}')
    'too late'
    """
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace") or "no reason given"


def refusal_of(status: int, sentence: str) -> Exception:
    """Return what a refusal is raised as.

    >>> refusal_of(507, "the disk is full")
    ResourceError('the disk is full')
    """
    if status in (401, 403):
        return ConfigurationError(sentence)
    if status == 410:
        return DroppedError(sentence)
    return ResourceError(sentence) if status >= 500 or status == 429 else DataError(sentence)


def _is_nobody(error: Exception) -> bool:
    """Whether there is no such service at all, so that waiting does not help."""
    cause = getattr(error, "reason", error)  # a certificate that is wrong stays so
    return isinstance(cause, (ConnectionRefusedError, ValueError, SSLCertVerificationError))
