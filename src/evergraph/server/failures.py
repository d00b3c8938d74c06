"""From an exception to a status and one sentence."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from evergraph.core.errors import (
    DuplicateNodeError,
    EvergraphError,
    KeyReusedError,
    LooseEdgeError,
    NothingLearnedError,
    ResourceError,
    StoppedError,
    UnknownNodeError,
)
from evergraph.server.refusal import RefusedError

if TYPE_CHECKING:
    from fastapi import FastAPI

# Whatever else is an error of ours says that the input breaks a rule.
STATUSES: tuple[tuple[type[EvergraphError], int], ...] = (
    (LooseEdgeError, 422),
    (UnknownNodeError, 404),
    (DuplicateNodeError, 409),
    (KeyReusedError, 409),
    (NothingLearnedError, 409),
    (StoppedError, 503),
    (ResourceError, 507),
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


def answer_failures(app: FastAPI) -> None:
    """Have every exception answered as ``{"error": "one sentence"}``."""
    app.add_exception_handler(EvergraphError, _ours)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unforeseen)


def _say(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers=headers)


async def _ours(_: Request, error: Any) -> JSONResponse:
    headers = error.headers if isinstance(error, RefusedError) else None
    return _say(status_of(error), str(error), headers)


async def _parameters(_: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    name = first["loc"][-1] if first["loc"] else "the request"
    return _say(422, f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}")


async def _http(request: Request, error: Any) -> JSONResponse:
    path = request.scope["path"]
    said = {404: f"there is nothing at {path}", 405: f"{path} does not take {request.method}"}
    return _say(error.status_code, said.get(error.status_code, str(error.detail)), error.headers)


async def _gone(_: Request, __: Any) -> JSONResponse:
    return _say(400, "the request ended before its body did")


async def _unforeseen(request: Request, error: Any) -> JSONResponse:
    reference = secrets.token_hex(4)
    log.error("%s %s failed [%s]", request.method, request.scope["path"], reference, exc_info=error)
    return _say(500, f"something failed that should not: its reference in the log is {reference}")
