"""The page at ``/``, from files of this package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter
from starlette.responses import Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_routes() -> APIRouter:
    """Return the routes of the page; it holds no data, so anyone may load it."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in FILES.items():
        router.add_api_route(path, _serving(name, kind), methods=["GET", "HEAD"])
    return router


def _serving(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    text = resources.files(__package__).joinpath("page", name).read_bytes()

    async def serve() -> Response:
        return Response(text, media_type=kind)

    return serve
