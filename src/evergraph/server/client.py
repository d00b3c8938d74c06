"""Client of a service, for the command line and for other processes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from ssl import SSLCertVerificationError, create_default_context
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from evergraph.core.errors import ConfigurationError, DataError, ResourceError
from evergraph.core.packages import require

if TYPE_CHECKING:
    from torch import Tensor

    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.online.delta import Delta, EdgeColumns, Label, NodeId
    from evergraph.online.folder.backup import BackedUp
    from evergraph.tables import Encoder, Scheme

# Not taken from ``http``: a client needs nothing of the extra ``serve``.
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
TRIES = 8
MAX_IDS = 10_000  # in one request
MAX_PAUSE = 20.0  # seconds between two tries
PERMANENT = (ConnectionRefusedError, ValueError, SSLCertVerificationError)


class Client:
    """A connection to a service.

    Requests that were rejected because the service is busy are sent again after a while.

    Args:
        url: of the service, such as ``http://127.0.0.1:8000``.
        token: of its token file, if it has one.
        seconds: how long to wait for an answer.
        ca: PEM file of the authority that signed its certificate, instead of the system's.
    """

    def __init__(
        self, url: str, *, token: str | None = None, seconds: float = 60.0, ca: Path | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.seconds = seconds
        self._open = opener(url, ca)
        self._has_sent_nodes = False

    def submit(self, delta: Delta) -> dict[str, Any]:
        """Send a delta and return its result."""
        return self._send("/v1/deltas", delta, delta.key)

    def _send(self, path: str, delta: Delta, key: str | None) -> dict[str, Any]:
        if self._has_sent_nodes:  # the service knows by which scheme columns are read
            delta = replace(delta, scheme=None)
        done = self._ask(path, arrow_from_delta(delta), ARROW, key)
        self._has_sent_nodes |= len(delta.nodes) > 0
        return done

    def knows_nodes(self, ids: Sequence[NodeId]) -> list[bool]:
        """Return which ids are known; fetches the ids of all nodes."""
        known = frozenset(self.every_id())
        return [node in known for node in ids]

    def edges_beyond(self, *dump: Any) -> tuple[EdgeColumns, int]:
        """Raise: a service does not list its edges."""
        raise ConfigurationError(
            f"--sync compares edges in a folder only, and {self.url} is a service: give --nodes "
            "alone, or mark edges to remove in a column 'op'"
        )

    def check(self, deltas: TableDeltas) -> None:
        """Do nothing: the service finds out which nodes are unknown."""

    def columns(self, encoders: Iterable[Encoder] = ()) -> Scheme | None:
        """Return how the service's learner reads columns; None if it takes plain numbers."""
        from evergraph.tables.scheme import Scheme

        scheme = self._ask("/v1/columns")["scheme"]
        return None if scheme is None else Scheme.from_json(scheme, encoders)

    def upsert(self, delta: Delta) -> dict[str, Any]:
        """Send a delta that may be known in part, and return what was new; safe to repeat."""
        return self._send("/v1/upsert", delta, None)

    def predict(
        self,
        ids: Sequence[NodeId],
        *,
        every_class: bool = False,
        known: bool = False,
        after: int = 0,
    ) -> list[dict[str, Any]]:
        """Return the predictions for nodes, in their order.

        every_class: with all probabilities; known: with what is known of them; after: ``seq`` of a
        delta that they must include.
        """
        path = f"/v1/predictions?after={after}" if after else "/v1/predictions"
        predictions: list[dict[str, Any]] = []
        for start in range(0, len(ids), MAX_IDS):
            question = {
                "ids": list(ids[start : start + MAX_IDS]),
                "all": every_class,
                "known": known,
            }
            predictions += self._ask(path, json.dumps(question).encode())["predictions"]
        return predictions

    def ask(self, delta: Delta, *, every_class: bool = False) -> list[dict[str, Any]]:
        """Return the predictions for a delta's new nodes, without adding them."""
        question: dict[str, Any] = {
            "nodes": list(delta.nodes),
            "features": delta.features.tolist(),
            "edges": [list(edge) for edge in delta.edges],
            "weights": [float(weight) for weight in delta.weights],
            "relations": list(delta.relations),
            "types": list(delta.types),
            "all": every_class,
        }
        predictions: list[dict[str, Any]]
        predictions = self._ask("/v1/predictions", json.dumps(question).encode())["predictions"]
        return predictions

    def every_id(self) -> list[NodeId]:
        """Return the ids of all nodes."""
        return self._paged("ids")

    def classes(self) -> list[Label]:
        """Return the names of all classes."""
        return self._paged("classes")

    def _paged(self, what: str) -> list[Any]:
        items: list[Any] = []
        start: int | None = 0
        while start is not None:
            page = self._ask(f"/v1/{what}?start={start}&limit={MAX_IDS}")
            items += page[what]
            start = page["next"]
        return items

    def last_key(self, prefix: str) -> str | None:
        """Return the newest delta key with this prefix, if there is one."""
        key: str | None = self._ask(f"/v1/keys?{urlencode({'prefix': prefix})}")["key"]
        return key

    def suggest(self, n: int) -> list[dict[str, Any]]:
        """Return unlabelled nodes to label next, with reasons."""
        suggestions: list[dict[str, Any]] = self._ask(f"/v1/suggestions?n={n}")["suggestions"]
        return suggestions

    def explain(self, node: str, *, integer: bool, limit: int) -> dict[str, Any]:
        """Return the explanation of a node with at most ``limit`` neighbours."""
        query = urlencode({"node": node, "integer": integer, "limit": limit})
        return self._ask(f"/v1/nodes?{query}")

    def refit(self) -> dict[str, Any]:
        """Learn everything again; see ``Delta.refit``."""
        return self._ask("/v1/refit", b"{}")

    def compact(self, *, now: bool, keys: bool) -> dict[str, Any]:
        """Compact the folder; see ``CompactBody``."""
        return self._ask("/v1/compact", json.dumps({"now": now, "keys": keys}).encode())

    def backup(self, to: Path) -> BackedUp:
        """Download a backup: a new folder, which is verified, or a new file that ends in .tar."""
        from evergraph.core.safe_files import disk_is_enough, scratch_beside
        from evergraph.online.folder.backup import BackedUp, check_new, is_tar, restore

        check_new(to)
        with scratch_beside(to) as aside:
            archive = aside / "backup.tar"

            def save(answer: Any) -> dict[str, Any]:
                with disk_is_enough(to), archive.open("wb") as file:
                    shutil.copyfileobj(answer, file)
                if archive.stat().st_size != int(answer.headers["content-length"]):
                    raise ResourceError(f"{self.url}: the backup ended before it was complete")
                return {"fields": answer.headers["x-evergraph-backup"].split()}

            header = self._ask("/v1/backup", read=save, seconds=3600.0)
            if not is_tar(to):
                return restore(archive, to)
            archive.rename(to)
            return BackedUp(*map(int, header["fields"]))

    def alarms(self) -> list[dict[str, Any]]:
        """Return the accuracy alarm while it is raised."""
        alarms: list[dict[str, Any]] = self._ask("/v1/alarms")["alarms"]
        return alarms

    def status(self) -> dict[str, Any]:
        """Return the status of the learner and of its folder."""
        return self._ask("/v1/status")

    def _ask(
        self,
        path: str,
        body: bytes | None = None,
        kind: str = JSON,
        key: str | None = None,
        *,
        read: Callable[[Any], dict[str, Any]] = json.load,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Send a request, again while the service is busy, and read the answer."""
        headers = {"Content-Type": kind}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if key is not None:
            headers["Idempotency-Key"] = key
        request = Request(self.url + path, body, headers)
        for attempt in range(TRIES):
            wait = min(MAX_PAUSE, 0.25 * 2**attempt)
            try:
                with self._open(request, timeout=seconds or self.seconds) as answer:
                    return read(answer)
            except HTTPError as error:
                with error:
                    sentence = sentence_in(error.read())
                if error.code not in (429, 503) or attempt == TRIES - 1:
                    raise refusal_of(error.code, f"{self.url}: {sentence}") from None
            except (URLError, HTTPException, OSError) as error:
                # Nothing listens, or the URL or certificate is invalid: trying again cannot help.
                cause = getattr(error, "reason", error)
                if attempt == TRIES - 1 or isinstance(cause, PERMANENT):
                    raise ResourceError(f"{self.url}: no service answers ({cause})") from error
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")


def arrow_from_delta(delta: Delta) -> bytes:
    """Return a delta as bytes that ``ArrowReader`` reads.

    >>> import torch
    >>> from evergraph import Delta
    >>> from evergraph.server.arrow import ArrowReader
    >>> sent = arrow_from_delta(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))
    >>> ArrowReader().read(sent).features
    tensor([[1., 1.]])
    """
    require("pyarrow", extra="tables", why="sending a delta to a service")
    import numpy as np

    from evergraph.online.delta import edge_columns
    from evergraph.tables.arrow import MARK, pa
    from evergraph.tables.columns import RELATION, TYPE
    from evergraph.tables.names import ENDS

    def ends(edges: Sequence[tuple[NodeId, NodeId]]) -> dict[str, Any]:
        columns = edge_columns(edges)
        if columns is None:
            raise DataError("edges must be pairs of ids to be sent")
        return dict(zip(ENDS, columns.sides, strict=True))

    def feature_lists(features: Tensor, nodes: Sequence[NodeId]) -> Any:
        if len(nodes) and (len(features) != len(nodes) or not features.numel()):
            # Sent without features, these would be nodes to label or to forget.
            raise DataError(
                f"features have shape {tuple(features.shape)}: expected [{len(nodes)}, dims]"
            )
        rows = np.ascontiguousarray(features.numpy(), dtype=np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), max(rows.shape[1], 1))

    tables: list[dict[str, Any]] = [
        {
            "id": list(delta.nodes),
            "label": list(delta.labels),
            "features": feature_lists(delta.features, delta.nodes),
            TYPE: delta.types,
        },
        ends(delta.edges) | {"weight": np.array(delta.weights, float), RELATION: delta.relations},
        ends(delta.removed_edges) | {"op": ["remove"] * len(delta.removed_edges)},
        {
            "id": list(delta.updated),
            "features": feature_lists(delta.updated_features, delta.updated),
            "op": ["update"] * len(delta.updated),
        },
        {"id": [node for node, _ in delta.late], "label": [label for _, label in delta.late]},
        {"id": list(delta.forgotten)},
    ]
    metadata = {}
    if delta.scheme is not None and len(delta.nodes):
        metadata = {"columns": delta.scheme.to_json()}
    mark = {MARK: json.dumps(metadata).encode()}
    sink = pa.BufferOutputStream()
    for columns in tables:
        if filled := {name: values for name, values in columns.items() if len(values)}:
            table = pa.table(filled).replace_schema_metadata(mark)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    return bytes(sink.getvalue())


def is_url(text: str) -> bool:
    """Whether a target is a service, not a folder.

    >>> is_url("http://127.0.0.1:8000"), is_url("runs/learner")
    (True, False)
    """
    return urlsplit(text).scheme in ("http", "https")


def opener(url: str, ca: Path | None = None) -> Callable[..., Any]:
    """Return ``urlopen`` without redirects, which would send the token to another server."""
    if ca is not None and urlsplit(url).scheme != "https":
        raise ConfigurationError(f"ca is for a service at an https URL, not {url!r}")
    if urlsplit(url).scheme != "https":
        return build_opener(_NoRedirects).open
    try:
        context = create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(f"{ca}: ca must hold certificates as PEM ({error})") from None
    return build_opener(_NoRedirects, HTTPSHandler(context=context)).open


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return no further request: a redirect is an error, like any answer that is not 200."""


def sentence_in(body: bytes) -> str:
    """Return the sentence of an error answer."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace") or "no reason given"


def refusal_of(status: int, sentence: str) -> Exception:
    """Return the exception for an error answer."""
    if status in (401, 403):
        return ConfigurationError(sentence)
    return ResourceError(sentence) if status >= 500 or status == 429 else DataError(sentence)
