"""Routes that tell what the learner knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse, PlainTextResponse

from evergraph.server.bodies import media_type, parse, read_body
from evergraph.server.media import JSON
from evergraph.server.metrics import KIND
from evergraph.server.openapi import ERROR, MEANINGS, accepts, answers
from evergraph.server.payloads import PredictionsBody
from evergraph.server.refusal import RefusedError
from evergraph.server.replies import (
    HealthReply,
    HistoryReply,
    NodeReply,
    PredictionsReply,
    StatusReply,
)

if TYPE_CHECKING:
    from evergraph.server.guard import Guard
    from evergraph.server.metrics import Metrics
    from evergraph.server.service import Service

MOST_NEIGHBOURS = 200  # what can still be drawn


def reading_routes(service: Service, guard: Guard, metrics: Metrics) -> APIRouter:
    """Return the routes for callers that may read, and those that anyone may call."""
    router = APIRouter(tags=["ask"])
    may_read: dict[str, Any] = {"dependencies": [Depends(guard.needs("read"))]}

    @router.post(
        "/v1/predictions",
        openapi_extra=accepts(PredictionsBody),
        responses=answers(PredictionsReply, 401, 403, 404, 409, 413, 415, 422, 429, 503),
        **may_read,
    )
    async def predictions(request: Request) -> JSONResponse:
        """Predict the classes of nodes, from what was learned up to the last delta."""
        media_type(request, JSON)
        asked = parse(PredictionsBody, await read_body(request, service.limits))
        most, named = service.limits.nodes, len(asked.ids)
        if named > most:
            raise RefusedError(413, f"a request must name at most {most} nodes, not {named}")
        return JSONResponse(await service.predictions(asked.ids, every_class=asked.all))

    @router.get("/v1/status", responses=answers(StatusReply, 401, 403, 429, 503), **may_read)
    async def status() -> JSONResponse:
        """Tell what the learner knows: nodes, edges, classes, how often it was right."""
        return JSONResponse(service.status())

    @router.get("/v1/history", responses=answers(HistoryReply, 401, 403, 429, 503), **may_read)
    async def history() -> JSONResponse:
        """Tell how good predictions were before their labels came, over time."""
        return JSONResponse(await service.history())

    @router.get(
        "/v1/nodes/{node:path}",
        responses=answers(NodeReply, 401, 403, 404, 409, 422, 429, 503),
        **may_read,
    )
    async def node(
        node: str,
        integer: bool = Query(False, description="Whether the id is an integer, not a string."),
        limit: int = Query(60, ge=1, le=MOST_NEIGHBOURS, description="How many nodes to list."),
    ) -> JSONResponse:
        """Tell what surrounds a node, its prediction, and which neighbours speak for which class.

        Without `integer` an id that only an integer has is found all the same.
        """
        return JSONResponse(await service.node(node, integer=integer, limit=limit))

    @router.get("/healthz", responses=answers(HealthReply))
    async def healthz() -> JSONResponse:
        """Answer as long as the service lives."""
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", response_class=PlainTextResponse, responses=METRICS, **may_read)
    async def prometheus() -> PlainTextResponse:
        """Tell counts and times in Prometheus' text format."""
        return PlainTextResponse(metrics.text(service.gauges()), media_type=KIND)

    return router


METRICS: dict[int | str, dict[str, Any]] = {
    status: {"content": {JSON: {"schema": ERROR}}, "description": MEANINGS[status]}
    for status in (401, 403, 429)
}
