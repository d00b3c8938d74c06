"""A request's body and an answer's shape: parameters, media types, failures, headers, time."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import anyio
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from evergraph.core.errors import (
    DroppedError,
    DuplicateNodeError,
    EvergraphError,
    KeyReusedError,
    LooseEdgeError,
    NothingLearnedError,
    ResourceError,
    StoppedError,
    TooMuchError,
    UnknownEdgeError,
    UnknownNodeError,
)
from evergraph.core.extras import installed

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Message, Scope

    from evergraph.server.limits import Limits

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
LONGEST = 40  # characters of a name that are told
SMALL = 1 << 16  # bytes of a body that does not count: what connections read ahead in any case
# The page loads its own two files and asks its own service, nothing else.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
# Set for the time of a request, in its task and in the threads that work for it.
REQUEST_ID: ContextVar[str] = ContextVar("evergraph_request_id", default="")


class RefusedError(EvergraphError):
    """What is said instead of an answer: an HTTP status and one sentence.

    >>> RefusedError(404, "there is no node 'a'").status
    404
    """

    def __init__(self, status: int, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """When to come back, and how to say who one is."""
        wait = self.retry_after
        said = {} if wait is None else {"Retry-After": str(math.ceil(max(1.0, wait)))}
        return said | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


# Whatever else is an error of ours says that the input breaks a rule.
STATUSES: tuple[tuple[type[EvergraphError], int], ...] = (
    (LooseEdgeError, 422),
    (UnknownNodeError, 404),
    (UnknownEdgeError, 404),
    (DuplicateNodeError, 409),
    (KeyReusedError, 409),
    (DroppedError, 410),
    (NothingLearnedError, 409),
    (StoppedError, 503),
    (ResourceError, 507),
    (TooMuchError, 413),
)
log = logging.getLogger(__name__)


def status_of(error: EvergraphError) -> int:
    """Return the HTTP status of an error of ours.

    >>> status_of(ResourceError("the disk is full"))
    507
    """
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 422)


def answer_failures(app: FastAPI, folder: Path | None = None) -> None:
    """Have every exception answered as ``{"error": "one sentence"}``.

    folder: the learner's; its place is told in the log only.
    """
    app.state.folder = folder
    app.add_exception_handler(EvergraphError, _ours)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _ours)
    app.add_exception_handler(Exception, _ours)


def _say(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers=headers)


async def _ours(request: Request, error: Any) -> JSONResponse:
    return failure(error, request.scope, request.app.state.folder)


def failure(error: Exception, scope: Scope, folder: Path | None = None) -> JSONResponse:
    """Return what is answered in place of what failed; folder: as in ``answer_failures``."""
    if isinstance(error, ClientDisconnect):
        return _say(400, "the request ended before its body did")
    if isinstance(error, EvergraphError):
        headers = error.headers if isinstance(error, RefusedError) else None
        if isinstance(error, StoppedError):  # it tries to go on by itself
            headers = {"Retry-After": "5"}
        status, sentence = status_of(error), without_paths(error, folder)
        if status >= 500 or sentence != str(error):
            log.warning("%s %s answered %d: %s", scope["method"], scope["path"], status, error)
        return _say(status, sentence, headers)
    reference = REQUEST_ID.get() or secrets.token_hex(4)
    log.error("%s %s failed [%s]", scope["method"], scope["path"], reference, exc_info=error)
    return _say(500, f"something failed that should not: its reference in the log is {reference}")


async def _parameters(_: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    name = first["loc"][-1] if first["loc"] else "the request"
    return _say(422, f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}")


async def _http(request: Request, error: Any) -> JSONResponse:
    path = request.scope["path"]
    said = {404: f"there is nothing at {path}", 405: f"{path} does not take {request.method}"}
    return _say(error.status_code, said.get(error.status_code, str(error.detail)), error.headers)


def media_type(request: Request, *allowed: str) -> str:
    """Return what the body is said to be.

    A body that is not said to be JSON is refused even if it is: pages of other sites can send
    plain text to a service on this machine, but not JSON.
    """
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said not in allowed:
        raise RefusedError(415, f"content-type must be {' or '.join(allowed)}, not {said!r}")
    return said


class Bodies:
    """Reads the bodies of requests: each within its limits, and all of them together.

    Args:
        limits: how large a body may be, how long it may take, and how much is held at once.

    Attributes:
        held: bytes of the bodies of requests that are not answered yet; small ones do not count,
            since there are never more of them than connections.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0

    def of(self, request: Request) -> _Body:
        """Return the body of a request, for ``async with``: it is held until the end of that."""
        return _Body(self, request)

    def make_room(self, more: int) -> None:
        """Refuse so many bytes where too many are held already."""
        if more > 0 and self.held + more > self.limits.held:
            raise RefusedError(
                503,
                f"bodies of {self.held} bytes are held already, and at most {self.limits.held} may "
                "be: send it again later",
                retry_after=1,
            )


class _Body:
    """The body of one request, counted as it comes."""

    def __init__(self, bodies: Bodies, request: Request) -> None:
        self._bodies = bodies
        self._request = request
        self._counted = 0

    async def __aenter__(self) -> bytes:
        try:
            return await self._read()
        except BaseException:
            self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        self._bodies.held -= self._counted
        self._counted = 0

    async def _read(self) -> bytes:
        """Read it, and stop where it is larger than allowed, too slow, or too much to hold."""
        bodies, limits, request = self._bodies, self._bodies.limits, self._request
        length = _declared_length(request, limits)
        small = length <= SMALL and "transfer-encoding" not in request.headers
        if not small:
            bodies.make_room(length)
        parts, read, late = [], 0, time.monotonic() + limits.seconds
        more = True
        while more:
            message = await _in_time(request, late - time.monotonic(), limits)
            part, more = message.get("body", b""), message.get("more_body", False)
            read += len(part)
            if read > limits.body:
                raise RefusedError(413, f"the body must have at most {limits.body} bytes")
            if not small:
                bodies.make_room(len(part))
                bodies.held += len(part)
                self._counted += len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _declared_length(request: Request, limits: Limits) -> int:
    """Return how long a body is said to be, 0 where it is not; refuse one that is too long."""
    declared = request.headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise RefusedError(422, f"content-length must be a whole number, not {declared!r}")
    length = int(declared)
    if length > limits.body:
        raise RefusedError(413, f"the body must have at most {limits.body} bytes, not {length}")
    return length


async def _in_time(request: Request, seconds: float, limits: Limits) -> Message:
    """Return the next part of a body; refuse where it takes too long.

    As ``asyncio.timeout``, which Python 3.10 lacks, and at a tenth of the cost of anyio's.
    """
    task, late = asyncio.current_task(), False

    def stop() -> None:
        nonlocal late
        late = task is not None and task.cancel()

    clock = asyncio.get_running_loop().call_later(max(seconds, 0.0), stop)
    try:
        message = await request.receive()
    except asyncio.CancelledError:
        if late:
            raise RefusedError(
                503, f"the body took longer than {limits.seconds:g} s to arrive"
            ) from None
        raise
    finally:
        clock.cancel()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


T = TypeVar("T")


async def in_thread(call: Callable[[], T], seconds: float) -> T:
    """Return what ``call`` returns, from a thread of its own; refuse where it takes too long."""
    try:
        with anyio.fail_after(seconds):
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    except TimeoutError:
        raise RefusedError(
            503, f"the answer took longer than {seconds:g} s", retry_after=1
        ) from None


# Begins where no word does, so that "and/or" and "1/2" are none.
_ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/:'\"()]+/)*([^\s/:'\"()]+)")


def without_paths(error: Exception | str, folder: Path | None = None) -> str:
    """Return what an error says, with files named as within the learner's folder.

    What is said of the machine has no other absolute path either. Other sentences may hold ids,
    which can look like paths and stay as they are.

    >>> without_paths("/srv/papers/journal.sqlite: the disk is full", Path("/srv/papers"))
    'journal.sqlite: the disk is full'
    """
    text = str(error)
    if folder is not None:
        for base in {folder, folder.absolute(), folder.resolve()}:
            if base.is_absolute():
                text = text.replace(f"{base}/", "").replace(str(base), base.name)
    if isinstance(error, str | StoppedError | ResourceError):
        text = _ABSOLUTE.sub(r"\1", text)
    return text


async def only_known(request: Request) -> None:
    """Refuse a request with a parameter that its route does not take, or with one that comes twice.

    Which it takes is what the service's own description says.
    """
    query = request.scope["query_string"]
    if query:
        check_parameters(query, _known(request))


def check_parameters(query: bytes, known: Sequence[str]) -> None:
    """Raise unless a query names known parameters only, each once.

    >>> check_parameters(b"start=3", ["start", "limit"])
    >>> check_parameters(b"limt=3", ["start", "limit"])
    Traceback (most recent call last):
    evergraph.server.http.RefusedError: there is no parameter 'limt' here: did you mean 'limit'
    """
    named = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for place, name in enumerate(named):
        if name not in known:
            hint = _hint(name, known)
            raise RefusedError(400, f"there is no parameter {name[:LONGEST]!r} here: {hint}")
        if name in named[:place]:
            raise RefusedError(400, f"parameter {name!r} must come once, and comes twice")


def _hint(name: str, known: Sequence[str]) -> str:
    """Return the nearest known name, or all of them.

    >>> _hint("x", ["start", "limit"]), _hint("x", [])
    ('it takes start, limit', 'it takes none')
    """
    near = get_close_matches(name[:LONGEST], known, n=1)
    return f"did you mean {near[0]!r}" if near else f"it takes {', '.join(known) or 'none'}"


def _known(request: Request) -> list[str]:
    app: FastAPI = request.app
    path = app.openapi()["paths"].get(request.scope["route"].path_format, {})
    listed = path.get(request.method.lower(), {}).get("parameters", [])
    return [each["name"] for each in listed if each["in"] == "query"]


def as_json(value: Any) -> bytes:
    """Return a value as JSON, by orjson where it is installed.

    >>> as_json({"seq": 1})
    b'{"seq":1}'
    """
    return _dumps()(value)


@cache
def _dumps() -> Callable[[Any], bytes]:
    if installed("orjson"):
        import orjson

        return orjson.dumps
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return lambda value: encoder.encode(value).encode()


_KEY = re.compile(rb'"[ \t\r\n]*:')


def refuse_twice(body: bytes, keys: int) -> None:
    """Raise where a key comes twice in an object of a body that was read already.

    Who reads it keeps the last of the two in silence. A body with no more colons than keys has
    none, nor has one with no more colons behind a quotation mark: in a text that mark is escaped,
    and counts too. Whatever else is read once more.

    keys: how many all objects of the body had together once they were read.

    >>> refuse_twice(b'{"ids": ["a:b"]}', 1)
    >>> refuse_twice(b'{"ids": ["a"], "ids": ["b"]}', 1)
    Traceback (most recent call last):
    evergraph.server.http.RefusedError: key 'ids' must come once in an object, and comes twice
    """
    if body.count(b":") == keys or sum(1 for _ in _KEY.finditer(body)) == keys:
        return
    json.loads(body, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise RefusedError(
                400, f"key {name[:LONGEST]!r} must come once in an object, and comes twice"
            )
        found[name] = value
    return found
