"""The ASGI application: all routes around one learner, those that read and the page at ``/`` here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import anyio
from fastapi import Depends, FastAPI, Query, Request
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from evergraph.core.packages import own_version
from evergraph.online.graph.neighbour_lists import is_compiled
from evergraph.online.identifiers import LARGEST
from evergraph.server import http, schema
from evergraph.server.auth import Guard
from evergraph.server.bodies import ColumnsOfBody, PredictionsBody, read_question
from evergraph.server.changes import change_routes, upkeep_routes
from evergraph.server.http import (
    JSON,
    LeanRoute,
    Limits,
    RefusedError,
    answer,
    check_parameters,
    media_type,
)
from evergraph.server.observability import KIND, Metrics, Observed, ServiceCollector
from evergraph.server.service import Service
from evergraph.tables.names import OF_NODES

if TYPE_CHECKING:
    from fastapi import APIRouter

    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.auth import Tokens

# Modules that the first deltas of a large graph and the first table would load. Nobody is answered
# while an extension module is loaded, which for all of these takes up to a second.
NEEDED_LATER = (
    "scipy.special",
    "pyarrow.compute",
    "pandas",
    "pyarrow.pandas_compat",
    "evergraph.graphs.kernels.numba_sum",
)
ABOUT = """A classifier for the nodes of a growing graph.

A rejected request changes nothing; its answer is `{"error": "one sentence"}`."""
MAX_IDS = 10_000  # in one answer
MAX_SUGGESTIONS = 1_000
MAX_NEIGHBOURS = 200  # more cannot be drawn legibly
FACTS = "requests for facts"
SMALL_QUESTION = 1 << 14  # bytes of one that is parsed on the event loop
REFUSED = (401, 403, 429, 503)  # statuses that any reading route may answer with
AFTER: int = Query(0, ge=0, le=LARGEST, description="Wait for the delta with this `seq`.")


def after_in(query: bytes) -> int:
    """Return the parameter ``after`` of a query string, 0 if it is missing."""
    check_parameters(query, ["after", *OF_NODES])
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("after", ["0"])[-1]
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST:
        return int(text)
    raise RefusedError(422, f"after must be the seq of a delta, not {text[:40]!r}")


class ReadyReply(BaseModel):
    """The service is ready for requests."""

    status: str


class NotReadyReply(BaseModel):
    """Why the service is not ready for requests."""

    status: str = Field(description="`recovering`, `stopped` or `stopping`.")
    done: int | None = Field(None, description="Deltas replayed so far.")
    of: int | None = Field(None, description="Deltas to replay.")
    seconds_left: float | None = Field(None, description="Estimated time until recovery ends.")
    why: str | None = Field(None, description="Why the learner accepts no changes.")


READINESS: dict[int | str, dict[str, Any]] = {
    **schema.answers(ReadyReply),
    200: {"model": ReadyReply, "description": "Ready."},
    503: {"model": NotReadyReply, "description": "Not ready: see Retry-After."},
}
OF_ROWS = tuple(
    schema.query_parameter(name, f"The name of the column `{name}` in rows.") for name in OF_NODES
)


def reading_routes(service: Service, guard: Guard, metrics: Metrics) -> APIRouter:  # noqa: C901
    """Return the routes for callers with read access, and those open to everyone."""
    router = http.router(tags=["ask"], route_class=http.IdRoute)
    may_read: dict[str, Any] = {"dependencies": [Depends(guard.needs("read"))]}

    async def reply(kind: str, call: Callable[[], Any]) -> Response:
        """Run a call, and serialise its result, on a thread for this kind of work."""
        return await service.pools[kind].run(lambda: answer(call()))

    async def caught_up(after: int = AFTER) -> None:
        await service.wait_for(after)

    in_time: dict[str, Any] = {"dependencies": [*may_read["dependencies"], Depends(caught_up)]}

    def of_a_node(path: str, reply: type[BaseModel]) -> Callable[[Any], Any]:
        """Return what adds a route twice: with an id in the path, and as a parameter ``node``.

        Browsers, clients and proxies shorten paths such as ``/..`` and ``/a//b`` before they ask.
        """
        options = in_time | {"responses": schema.answers(reply, *REFUSED, 404, 409, 422)}
        in_path = router.get(f"{path}/{{node:path}}", **options)
        in_query = router.get(path, **options)
        return lambda endpoint: in_query(in_path(endpoint))

    async def predictions(request: Request, after: int = AFTER) -> Response:
        """Predict the classes of nodes, from what was learned up to the last delta.

        With `rows`, `nodes`, `edges` or another part of a delta: as they would be after that
        change, which is applied to a copy of the learner only.
        """
        guard.admit(request, "read")
        media_type(request, JSON)
        async with service.bodies.received(request) as body:
            read = partial(read_question, body, most=service.limits.nodes)
            if len(body) < SMALL_QUESTION:
                question = read()
            else:
                question = await service.pools["bodies"].run(read)
            if query := request.scope["query_string"]:
                await service.wait_for(after_in(query))
            if question.has_change:
                parameters = request.query_params
                own_columns = ColumnsOfBody(
                    {name: parameters[name] for name in OF_NODES if name in parameters}
                )
                read_change = partial(
                    service.reader.read, body, model="question", kind=JSON, own_columns=own_columns
                )
                change = await service.pools["bodies"].run(read_change)
                predictions_text = await service.ask(
                    change, question.ids or None, every_class=question.all
                )
            elif question.known:
                predictions_text = await service.beside_known(
                    question.ids, every_class=question.all
                )
            else:
                predictions_text = await service.predictions(question.ids, every_class=question.all)
        return Response(predictions_text, media_type=JSON)

    router.add_api_route(
        "/v1/predictions",
        predictions,
        methods=["POST"],
        route_class_override=LeanRoute,
        openapi_extra=schema.accepts(PredictionsBody) | schema.parameters(*OF_ROWS),
        responses=schema.answers(schema.PredictionsReply, *REFUSED, 404, 409, 413, 415, 422),
        **may_read,
    )

    @of_a_node("/v1/predictions", schema.PredictionsReply)
    async def prediction(
        node: str,
        integer: bool = Query(False, description="Whether the id is an integer, not a string."),
        all: bool = Query(False, description="Whether to return the probability of every class."),
    ) -> Response:
        """Predict the class of one node.

        Without `integer`, the string id is tried first, then the integer id of the same digits.
        """
        prediction_text = await service.prediction(node, integer=integer, every_class=all)
        return Response(prediction_text, media_type=JSON)

    @router.get("/v1/status", responses=schema.answers(schema.StatusReply, *REFUSED), **may_read)
    async def status() -> Response:
        """Return the learner's status: nodes, edges, classes, accuracy before labels came."""
        return await reply(FACTS, service.status)

    @router.get("/v1/columns", responses=schema.answers(schema.ColumnsReply, *REFUSED), **may_read)
    async def columns() -> Response:
        """Return how columns of rows and tables are read, as fixed by the first table."""
        if (scheme := service.folder.columns) is None:
            return answer({"columns": [], "scheme": None})
        return await reply(FACTS, lambda: {"columns": scheme.rows(), "scheme": scheme.to_json()})

    @router.get("/v1/ids", responses=schema.answers(schema.IdsReply, *REFUSED, 422), **in_time)
    async def ids(
        start: int = Query(0, ge=0, le=LARGEST, description="Where to begin."),
        limit: int = Query(1000, ge=1, le=MAX_IDS, description="How many positions to scan."),
    ) -> Response:
        """List the ids of nodes, one page at a time."""

        def one_page() -> dict[str, Any]:
            page, following = service.view.ids_from(start, limit)
            return {"ids": page, "next": following}

        return await reply(FACTS, one_page)

    @router.get(
        "/v1/classes", responses=schema.answers(schema.ClassesReply, *REFUSED, 422), **in_time
    )
    async def classes(
        start: int = Query(0, ge=0, le=LARGEST, description="Where to begin."),
        limit: int = Query(1000, ge=1, le=MAX_IDS, description="How many, at most."),
    ) -> Response:
        """List the names of classes, one page at a time."""

        def one_page() -> dict[str, Any]:
            names, end = service.view.classes, start + limit
            return {"classes": list(names[start:end]), "next": end if end < len(names) else None}

        return await reply(FACTS, one_page)

    @router.get("/v1/keys", responses=schema.answers(schema.KeyReply, *REFUSED, 422), **may_read)
    async def keys(
        prefix: str = Query(min_length=1, max_length=200, description="Prefix of the keys."),
    ) -> Response:
        """Return the newest delta key with this prefix: how far a stream has been ingested."""
        service.check_writes()
        return await reply(FACTS, lambda: {"key": service.folder.last_key(prefix)})

    @router.get(
        "/v1/history", responses=schema.answers(schema.HistoryReply, *REFUSED, 422), **in_time
    )
    async def history() -> Response:
        """Return the prequential record: how good predictions were before their labels came."""
        return await reply(FACTS, lambda: service.view.history())

    @router.get("/v1/alarms", responses=schema.answers(schema.AlarmsReply, *REFUSED), **may_read)
    async def alarms() -> Response:
        """Return the accuracy alarm while it is raised."""
        return await reply(FACTS, service.alarms)

    @router.get(
        "/v1/suggestions",
        responses=schema.answers(schema.SuggestionsReply, *REFUSED, 422),
        **may_read,
    )
    async def suggestions(
        n: int = Query(20, ge=1, le=MAX_SUGGESTIONS, description="How many, at most."),
    ) -> Response:
        """Suggest unlabelled nodes to label next, with reasons."""

        def ranked() -> dict[str, Any]:
            view = service.view
            with view.reading():  # both of the same delta
                best = schema.to_json(view.suggest(n))
                return {"seq": view.status().seq, "suggestions": best}

        return await reply("suggestions", ranked)

    @of_a_node("/v1/nodes", schema.NodeReply)
    async def node(
        node: str,
        integer: bool = Query(False, description="Whether the id is an integer, not a string."),
        limit: int = Query(60, ge=1, le=MAX_NEIGHBOURS, description="How many nodes to list."),
    ) -> Response:
        """Explain a node: its neighbourhood, its prediction, and what each neighbour contributes.

        Without `integer`, the string id is tried first, then the integer id of the same digits.
        """
        return await reply("look-ups", partial(service.node, node, integer=integer, limit=limit))

    @router.get("/healthz", responses=schema.answers(schema.HealthReply))
    async def healthz() -> Response:
        """Answer while the process is alive."""
        return answer({"status": "ok"})

    @router.get("/readyz", responses=READINESS)
    async def readyz() -> Response:
        """Return whether the service is ready for requests: recovered, and accepting changes."""
        readiness = service.readiness()
        if readiness["status"] == "ready":
            return answer(readiness)
        return answer(readiness, 503, {"Retry-After": "2"})

    @router.get("/metrics", response_class=PlainTextResponse, responses=METRICS, **may_read)
    async def prometheus() -> PlainTextResponse:
        """Return all metrics in Prometheus' text format."""
        return PlainTextResponse(await service.pools[FACTS].run(metrics.text), media_type=KIND)

    return router


METRICS: dict[int | str, dict[str, Any]] = {
    status: {"content": {JSON: {"schema": schema.ERROR}}, "description": schema.MEANINGS[status]}
    for status in (400, 401, 403, 429)
}
HTML = "text/html; charset=utf-8"
FILES = {
    "/": ("index.html", HTML),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/docs": ("docs.html", HTML),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_routes() -> APIRouter:
    """Return the routes of the pages, open to everyone: the files hold no data."""
    router = http.router(include_in_schema=False)

    def serving(text: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
        async def serve() -> Response:
            return Response(text, media_type=kind)

        return serve

    for path, (name, kind) in FILES.items():
        text = resources.files(__package__).joinpath("page", name).read_bytes()
        router.add_api_route(path, serving(text, kind), methods=["GET", "HEAD"])
    return router


def create_app(
    folder: LearnerFolder,
    *,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    access_log: bool = False,
) -> FastAPI:
    """Return the service for a learner's folder, which it closes on shutdown, after queued changes.

    folder: open for writing; or read-only, to follow the process that writes; tokens: who may read
    and write; None allows both to callers on this machine; access_log: whether every request is
    logged.
    """
    limits = Limits() if limits is None else limits
    metrics, guard = Metrics(), Guard(tokens, limits)
    service = Service(folder, limits)
    status = service.view.status()
    if is_compiled(status.edges * (1 + status.undirected)):
        for name in NEEDED_LATER:
            with suppress(ImportError):  # an extra that is not installed
                import_module(name)
        import_module("numba.core.registry").cpu_target.target_context.refresh()
    metrics.registry.register(ServiceCollector(service))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="evergraph",
        # FastAPI would read the environment at every request, and metrics are made here.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        version=own_version(),
        description=ABOUT,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # redirects would go to whatever the Host header names
        lifespan=lifespan,
    )
    app.state.failed, app.state.stopping = service.failed, service.stopping
    for router in (
        reading_routes(service, guard, metrics),
        change_routes(service, guard),
        upkeep_routes(service, guard),
        page_routes(),
    ):
        # Not ``include_router``, which keeps routers nested and matches every request twice.
        app.router.routes += router.routes
    # In place of FastAPI's layers, which would answer failures in three places. Its routes need the
    # exit stack.
    app.build_middleware_stack = lambda: Observed(  # type: ignore[method-assign]
        AsyncExitStackMiddleware(app.router),
        metrics=metrics,
        access_log=access_log,
        folder=folder.path,
    )
    return app
