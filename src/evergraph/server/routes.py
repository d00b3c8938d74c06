"""Routes that tell what the learner knows and how the service does, and the page at ``/``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from evergraph.online.identifiers import LARGEST
from evergraph.server.bodies import PredictionsBody, media_type
from evergraph.server.http import JSON, RefusedError, answer, check_parameters
from evergraph.server.observability import KIND
from evergraph.server.schema import (
    ERROR,
    MEANINGS,
    AlarmsReply,
    ClassesReply,
    ColumnsReply,
    ErrorReply,
    HealthReply,
    HistoryReply,
    IdsReply,
    KeyReply,
    NodeReply,
    PredictionsReply,
    StatusReply,
    SuggestionsReply,
    accepts,
    answers,
)

if TYPE_CHECKING:
    from evergraph.server.auth import Guard
    from evergraph.server.observability import Metrics
    from evergraph.server.service import Service

MOST_IDS = 10_000  # in one answer
MOST_SUGGESTIONS = 1_000
MOST_NEIGHBOURS = 200  # what can still be drawn
FACTS = "requests for facts"
ASKED = (401, 403, 429, 503)  # what every question may be refused with
AFTER: int = Query(0, ge=0, le=LARGEST, description="Wait until this delta is known: its `seq`.")


class LeanRoute(APIRoute):
    """A route whose endpoint is given the request, and does all that is to be done itself.

    Most requests ask for one node, and for these the framework's validation and dependencies cost
    more than the prediction does. What such a route declares is for the OpenAPI document.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint as it is."""
        return self.endpoint


def after_in(query: bytes) -> int:
    """Return the number of the delta that an answer must know, 0 where it is not said.

    >>> after_in(b"after=12"), after_in(b"")
    (12, 0)
    """
    check_parameters(query, ["after"])
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("after", ["0"])[-1]
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST:
        return int(text)
    raise RefusedError(422, f"after must be the seq of a delta, not {text[:40]!r}")


class ReadyReply(BaseModel):
    """The service takes requests."""

    status: str


class NotReadyReply(BaseModel):
    """Why the service is to be sent no requests now."""

    status: str = Field(description="`recovering`, `stopped` or `stopping`.")
    done: int | None = Field(None, description="How many deltas are known, of those to catch up.")
    of: int | None = Field(None, description="How many there are.")
    seconds_left: float | None = Field(None, description="Until it has caught up, if that is known")
    why: str | None = Field(None, description="Why the learner takes no changes.")


READINESS: dict[int | str, dict[str, Any]] = {
    200: {"model": ReadyReply, "description": "Ready."},
    400: {"model": ErrorReply, "description": MEANINGS[400]},
    503: {"model": NotReadyReply, "description": "Not ready: see Retry-After."},
}


def reading_routes(service: Service, guard: Guard, metrics: Metrics) -> APIRouter:
    """Return the routes for callers that may read, and those that anyone may call.

    metrics: what a monitor is told.
    """
    router = APIRouter(tags=["ask"])
    may_read: dict[str, Any] = {"dependencies": [Depends(guard.needs("read"))]}

    async def tell(kind: str, what: Callable[[], Any]) -> Response:
        """Answer with what a call returns: a thread for this kind makes it, and writes it."""
        return await service.pools[kind].run(lambda: answer(what()))

    async def caught_up(after: int = AFTER) -> None:
        await service.wait_for(after)

    in_time: dict[str, Any] = {"dependencies": [*may_read["dependencies"], Depends(caught_up)]}

    async def predictions(request: Request, after: int = AFTER) -> Response:
        """Predict the classes of nodes, from what was learned up to the last delta."""
        guard.admit(request, "read")
        media_type(request, JSON)
        async with service.bodies.of(request) as body:
            asked = await service.read_question(body)
        if query := request.scope["query_string"]:
            await service.wait_for(after_in(query))
        found = await service.predictions(asked.ids, every_class=asked.all)
        return Response(found, media_type=JSON)

    router.add_api_route(
        "/v1/predictions",
        predictions,
        methods=["POST"],
        route_class_override=LeanRoute,
        openapi_extra=accepts(PredictionsBody),
        responses=answers(PredictionsReply, *ASKED, 404, 409, 413, 415, 422),
        **may_read,
    )

    @router.get(
        "/v1/predictions/{node:path}",
        responses=answers(PredictionsReply, *ASKED, 404, 409, 422),
        **in_time,
    )
    async def prediction(
        node: str,
        integer: bool = Query(False, description="Whether the id is an integer, not a string."),
        all: bool = Query(False, description="Whether every class's probability is told."),
    ) -> Response:
        """Predict the class of one node.

        Without `integer` an id that only an integer has is found all the same.
        """
        found = await service.prediction(node, integer=integer, every_class=all)
        return Response(found, media_type=JSON)

    @router.get("/v1/status", responses=answers(StatusReply, *ASKED), **may_read)
    async def status() -> Response:
        """Tell what the learner knows: nodes, edges, classes, how often it was right."""
        return await tell(FACTS, service.status)

    @router.get("/v1/columns", responses=answers(ColumnsReply, *ASKED), **may_read)
    async def columns() -> Response:
        """Tell how columns of rows and tables are read, as the first of them settled it."""
        return await tell(FACTS, service.columns)

    @router.get("/v1/ids", responses=answers(IdsReply, *ASKED, 422), **in_time)
    async def ids(
        start: int = Query(0, ge=0, le=LARGEST, description="Where to begin."),
        limit: int = Query(1000, ge=1, le=MOST_IDS, description="How many places to look at."),
    ) -> Response:
        """Tell the ids of nodes, some at a time."""
        return await tell(FACTS, partial(service.ids, start, limit))

    @router.get("/v1/classes", responses=answers(ClassesReply, *ASKED, 422), **in_time)
    async def classes(
        start: int = Query(0, ge=0, le=LARGEST, description="Where to begin."),
        limit: int = Query(1000, ge=1, le=MOST_IDS, description="How many, at most."),
    ) -> Response:
        """Tell the names of classes, some at a time."""
        return await tell(FACTS, partial(service.classes, start, limit))

    @router.get("/v1/keys", responses=answers(KeyReply, *ASKED, 422), **may_read)
    async def keys(
        prefix: str = Query(min_length=1, max_length=200, description="What keys begin with."),
    ) -> Response:
        """Tell the key of the newest delta whose key begins so: how far a stream has come."""
        return await tell(FACTS, partial(service.last_key, prefix))

    @router.get("/v1/history", responses=answers(HistoryReply, *ASKED, 422), **in_time)
    async def history() -> Response:
        """Tell how good predictions were before their labels came, over time."""
        return await tell(FACTS, service.history)

    @router.get("/v1/alarms", responses=answers(AlarmsReply, *ASKED), **may_read)
    async def alarms() -> Response:
        """Tell the alarm that predictions are worse than they were, while they are."""
        return await tell(FACTS, service.alarms)

    @router.get("/v1/suggestions", responses=answers(SuggestionsReply, *ASKED, 422), **may_read)
    async def suggestions(
        n: int = Query(20, ge=1, le=MOST_SUGGESTIONS, description="How many, at most."),
    ) -> Response:
        """Tell which unlabelled nodes are worth asking a person about, and why."""
        return await tell("suggestions", partial(service.suggestions, n))

    @router.get(
        "/v1/nodes/{node:path}",
        responses=answers(NodeReply, *ASKED, 404, 409, 422),
        **in_time,
    )
    async def node(
        node: str,
        integer: bool = Query(False, description="Whether the id is an integer, not a string."),
        limit: int = Query(60, ge=1, le=MOST_NEIGHBOURS, description="How many nodes to list."),
    ) -> Response:
        """Tell what surrounds a node, its prediction, and which neighbours speak for which class.

        Without `integer` an id that only an integer has is found all the same.
        """
        asked = partial(service.node, node, integer=integer, limit=limit)
        return await tell("look-ups", asked)

    @router.get("/healthz", responses=answers(HealthReply))
    async def healthz() -> Response:
        """Answer as long as the service lives."""
        return answer({"status": "ok"})

    @router.get("/readyz", responses=READINESS)
    async def readyz() -> Response:
        """Tell whether the service is to be sent requests: caught up, and taking changes."""
        told = service.readiness()
        if told["status"] == "ready":
            return answer(told)
        return answer(told, 503, {"Retry-After": "2"})

    @router.get("/metrics", response_class=PlainTextResponse, responses=METRICS, **may_read)
    async def prometheus() -> PlainTextResponse:
        """Tell counts and times in Prometheus' text format."""

        return PlainTextResponse(await service.pools[FACTS].run(metrics.text), media_type=KIND)

    return router


METRICS: dict[int | str, dict[str, Any]] = {
    status: {"content": {JSON: {"schema": ERROR}}, "description": MEANINGS[status]}
    for status in (400, 401, 403, 429)
}


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
