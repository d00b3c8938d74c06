"""A request's body and an answer's shape: media types, failures, time."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

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
from evergraph.server.paths import without_paths
from evergraph.server.request_ids import REQUEST_ID

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import Message, Scope

    from evergraph.server.limits import Limits

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"


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


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read a body, and stop reading where it is larger than allowed."""
    parts = [part async for part in body_parts(request, limits)]
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def body_parts(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield a body as it comes, and stop where it is larger than allowed or too slow."""
    declared_length(request, limits)
    read, more, late = 0, True, time.monotonic() + limits.seconds
    while more:
        message = await _in_time(request, late - time.monotonic(), limits)
        part, more = message.get("body", b""), message.get("more_body", False)
        read += len(part)
        if read > limits.body:
            raise RefusedError(413, f"the body must have at most {limits.body} bytes")
        yield part


def declared_length(request: Request, limits: Limits) -> int:
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
