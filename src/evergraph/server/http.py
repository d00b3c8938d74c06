"""HTTP: limits, bodies read within them, errors in one sentence, headers, query parameters."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import orjson
from fastapi import APIRouter, Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from evergraph.core import errors
from evergraph.core.errors import check_integer, check_number

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
# Bytes of a body too small to be counted; there are at most as many of them as connections.
UNCOUNTED = 1 << 12
ROOM_SECONDS = 1.0  # for which a body waits, unread, until there is room for it
ROOM_PAUSE = 0.25  # seconds between two looks whether there is room
PARSED = {JSON: 40, ARROW: 1}  # times its own size that a body takes once it is parsed, at most
QUOTED = 40  # characters of a name that an error quotes
# The page loads its own files and calls its own service, nothing else.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
# Set during a request, in its task and in the threads that work for it.
REQUEST_ID: ContextVar[str] = ContextVar("evergraph_request_id", default="")
# Who asks, by token or address, set once the request is admitted: callers get equal shares.
CALLER: ContextVar[str] = ContextVar("evergraph_caller", default="")


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    >>> Limits(body=1_000).body
    1000
    >>> Limits(queue=0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: queue must be an integer of at least 1, not 0
    """

    body: int = 32_000_000  # bytes of a request body
    json: int = 1_000_000  # bytes of a JSON body, whose parsing holds up other requests
    rate: float = 10_000.0  # requests per second of a token, or of an address without tokens
    burst: int = 20_000  # requests at once after a pause
    guesses: float = 10.0  # invalid tokens per second from one address
    seconds: float = 30.0  # duration of a request
    nodes: int = 100_000  # ids that one request may name
    answers: int = 500_000  # probabilities in one answer
    queue: int = 64  # changes that may wait
    patience: float = 30.0  # seconds that a request waits for the delta named by ``after``
    connections: int = 1_000  # at once
    header_seconds: float = 10.0  # for a connection to send the head of a request
    idle_seconds: float = 15.0  # that an idle connection is kept
    held: int = 256_000_000  # bytes of all request bodies held at once, as sent and as parsed

    def __post_init__(self) -> None:
        for name in ("body", "json", "burst", "nodes", "answers", "queue", "connections", "held"):
            check_integer(name, getattr(self, name), least=1)
        for name in ("rate", "guesses", "seconds", "header_seconds", "idle_seconds"):
            check_number(name, getattr(self, name), least=0.001)
        check_number("patience", self.patience, least=0)


class RefusedError(errors.EvergraphError):
    """A rejected request: an HTTP status and one sentence.

    hang_up: whether to close the connection, and drop what was sent ahead on it.
    """

    def __init__(
        self, status: int, sentence: str, *, retry_after: float | None = None, hang_up: bool = False
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        if hang_up:
            self.headers["Connection"] = "close"
        if retry_after is not None:
            self.headers["Retry-After"] = str(math.ceil(max(1.0, retry_after)))


def check_named(what: str, named: int, most: int) -> None:
    """Reject a body that names too many nodes."""
    if named > most:
        raise RefusedError(413, f"a {what} must name at most {most} nodes, not {named}")


def address_of(request: Request) -> str:
    """Return where a request comes from."""
    return "?" if request.client is None else request.client.host


def media_type(request: Request, *allowed: str) -> str:
    """Return the content type of a request, or reject it.

    A page of another site can send plain text to a service on this machine, but not JSON.
    """
    declared = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if declared not in allowed:
        raise RefusedError(415, f"content-type must be {' or '.join(allowed)}, not {declared!r}")
    return declared


class Bodies:
    """Reads request bodies within limits: of each, of each caller, and of all together.

    ``held`` are the bytes that bodies may take, as sent and as parsed, whose requests are not
    answered yet, by caller.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held: Counter[str] = Counter()

    @asynccontextmanager
    async def received(self, request: Request, kind: str = JSON) -> AsyncIterator[bytes]:
        """Read the body of a request, and hold it until the end of the ``async with``."""
        most = min(self.limits.body, self.limits.held)
        if kind == JSON:
            most = min(most, self.limits.json)
        caller, size = CALLER.get(), _declared_size(request, most, kind)
        reserved = 0 if size <= UNCOUNTED else min((1 + PARSED[kind]) * size, self.limits.held // 2)
        if not reserved:
            yield await self._read(request, most, kind)
            return
        await self._wait_for_room(caller, reserved)
        self.held[caller] += reserved
        try:
            yield await self._read(request, most, kind)
        finally:
            self.held[caller] -= reserved
            self.held += Counter()  # without callers that hold none

    async def _wait_for_room(self, caller: str, more: int) -> None:
        """Wait while others are held: who sends much is slowed down, and need not send it again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ROOM_SECONDS
        while True:
            try:
                return self._check_room(caller, more)
            except RefusedError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(ROOM_PAUSE)

    def _check_room(self, caller: str, more: int) -> None:
        """Reject ``more`` bytes for which there is no room."""
        most = self.limits.held
        for held, share, whose, status in (
            (self.held[caller], most // 2, "this caller's", 429),
            (self.held.total(), most, "all", 503),
        ):
            if held + more > share:
                sentence = f"{held} bytes of {whose} request bodies are held, and the limit is"
                raise RefusedError(
                    status, f"{sentence} {share}: send it again later", retry_after=1
                )

    async def _read(self, request: Request, most: int, kind: str) -> bytes:
        body, more = bytearray(), True
        # As ``asyncio.timeout``, which Python 3.10 lacks, at a third of the cost of anyio's.
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "requests are answered in tasks"
        timer = loop.call_later(self.limits.seconds, task.cancel)
        try:
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise _too_long(most, kind)
        except asyncio.CancelledError:
            if loop.time() < timer.when():
                raise
            sentence = f"the body took longer than {self.limits.seconds:g} s to arrive"
            raise RefusedError(503, sentence) from None
        finally:
            timer.cancel()
        return bytes(body)


def _declared_size(request: Request, most: int, kind: str) -> int:
    """Return how many bytes a body has, at most; reject one that declares too many."""
    declared = request.headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise RefusedError(422, f"content-length must be a whole number, not {declared!r}")
    if int(declared) > most:
        raise _too_long(most, kind, f", not {int(declared)}")
    return most if "transfer-encoding" in request.headers else int(declared)


def _too_long(most: int, kind: str, declared: str = "") -> RefusedError:
    if kind == JSON:
        advice = ": send it in parts, or as Arrow"
        return RefusedError(413, f"a JSON body must have at most {most} bytes{declared}{advice}")
    return RefusedError(413, f"the body must have at most {most} bytes{declared}")


# Any other EvergraphError means that the input breaks a rule: 422.
STATUSES: tuple[tuple[type[errors.EvergraphError], int], ...] = (
    (errors.LooseEdgeError, 422),
    (errors.UnknownNodeError, 404),
    (errors.UnknownEdgeError, 404),
    (errors.DuplicateNodeError, 409),
    (errors.KeyReusedError, 409),
    (errors.NothingLearnedError, 409),
    (errors.StoppedError, 503),
    (errors.ResourceError, 507),
    (errors.TooMuchError, 413),
)
log = logging.getLogger(__name__)


def status_of(error: errors.EvergraphError) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 422)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as a JSON response."""
    return Response(orjson.dumps(value), status, headers, JSON)


def failure(error: Exception, scope: Scope, folder: Path | None = None) -> Response:
    """Return the answer to a request that failed: ``{"error": "one sentence"}``.

    folder: of the learner; its path appears in the log only.
    """
    method, path = scope["method"], scope["path"]
    status, sentence = 500, ""
    headers: Mapping[str, str] | None = None
    if isinstance(error, ClientDisconnect):
        status, sentence = 400, "the request ended before its body did"
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        name = first["loc"][-1] if first["loc"] else "the request"
        status, sentence = 422, f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    elif isinstance(error, HTTPException):
        sentences = {404: f"there is nothing at {path}", 405: f"{path} does not take {method}"}
        status, headers = error.status_code, error.headers
        sentence = sentences.get(status, str(error.detail))
    elif isinstance(error, errors.EvergraphError):
        status, sentence = status_of(error), without_paths(error, folder)
        headers = error.headers if isinstance(error, RefusedError) else None
        if isinstance(error, errors.StoppedError):  # the process is about to be restarted
            headers = {"Retry-After": "5"}
        if status >= 500 or sentence != str(error):
            log.warning("%s %s answered %d: %s", method, path, status, error)
    elif isinstance(error, MemoryError):  # others hold it now: nothing was taken in
        status, headers = 503, {"Retry-After": "5"}
        sentence = "the service has no memory left for this request: try again, or send less"
        log.warning("%s %s answered %d: %s", method, path, status, sentence)
    else:  # a bug
        reference = REQUEST_ID.get() or secrets.token_hex(4)
        log.error("%s %s failed [%s]", method, path, reference, exc_info=error)
        sentence = f"internal error: the log has details under reference {reference}"
    return answer({"error": sentence}, status, headers)


def clear_frames(error: BaseException | None) -> None:
    """Clear the frames that an error and its causes passed through; they keep their lines.

    An error and its future refer to each other through frames, which hold bodies and what was
    parsed of them, until the garbage collector looks: twenty rejected bodies of 1 MB held 1 GB.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


# The lookbehind excludes "and/or" and "1/2".
_ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/:'\"()]+/)*([^\s/:'\"()]+)")


def without_paths(error: Exception | str, folder: Path | None = None) -> str:
    """Return the text of an error, with files named relative to the learner's folder.

    Errors about the machine lose all other absolute paths too. The others keep them: ids of nodes
    can look like paths.
    """
    text = str(error)
    for base in () if folder is None else _spellings(folder):
        text = text.replace(f"{base}/", "").replace(str(base), base.name)
    if isinstance(error, str | errors.StoppedError | errors.ResourceError):
        text = _ABSOLUTE.sub(r"\1", text)
    return text


class IdRoute(APIRoute):
    """A route with an id of any characters in its path, newlines included."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


class LeanRoute(APIRoute):
    """A route whose endpoint receives the bare request, and checks the caller and the query itself.

    FastAPI's validation, dependencies and exit stacks would cost more than most requests. What is
    declared on such a route only serves the OpenAPI document.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def router(*dependencies: Any, **options: Any) -> APIRouter:
    """Return a router whose routes reject unknown parameters before anything else."""
    return APIRouter(dependencies=[Depends(reject_unknown_parameters), *dependencies], **options)


@cache
def _spellings(folder: Path) -> tuple[Path, ...]:  # cached, since links are looked up on the disk
    paths = {folder, folder.absolute(), folder.resolve()}
    return tuple(base for base in paths if base.is_absolute())


async def reject_unknown_parameters(request: Request) -> None:
    """Reject a query with an unknown or a repeated parameter."""
    if query := request.scope["query_string"]:
        names, parts = [], [request.scope["route"].dependant]
        for part in parts:  # the route, and what it depends on, which may depend on more
            names += [parameter.alias for parameter in part.query_params]
            parts += part.dependencies
        check_parameters(query, names)


def check_parameters(query: bytes, known: Sequence[str]) -> None:
    """Raise if a query names an unknown parameter, or one parameter twice."""
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for index, name in enumerate(names):
        if name not in known:
            near = get_close_matches(name[:QUOTED], known, n=1)
            hint = f"did you mean {near[0]!r}" if near else f"it takes {', '.join(known) or 'none'}"
            raise RefusedError(400, f"there is no parameter {name[:QUOTED]!r} here: {hint}")
        if name in names[:index]:
            raise RefusedError(400, f"parameter {name!r} must be given once, not twice")
