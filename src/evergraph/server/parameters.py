"""Parameters behind the ? of a request: those that nobody knows are refused, not passed over."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fastapi import Request

from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    from fastapi import FastAPI

LONGEST = 40  # characters of a name that are told


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
