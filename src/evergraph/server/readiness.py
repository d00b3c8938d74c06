"""Whether a service is to be sent requests: readiness, which is more than being alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from evergraph.server.paths import without_paths
from evergraph.server.schema import MEANINGS, ErrorReply

if TYPE_CHECKING:
    from evergraph.server.service import Service


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


def readiness(service: Service) -> dict[str, Any]:
    """Return ``{"status": "ready"}``, or what there is instead and why."""
    if service.stopping.is_set():
        return {"status": "stopping"}
    # Who only reads answers from what it has read; whether more comes is for the writer to say.
    stopped = None if service.folder.readonly else service.folder.status().stopped
    if stopped is not None:
        return {"status": "stopped", "why": without_paths(stopped, service.folder.path)}
    return {"status": "ready"}


def readiness_routes(service: Service) -> APIRouter:
    """Return the route that a load balancer asks."""
    router = APIRouter(tags=["ask"])
    described: dict[int | str, dict[str, Any]] = {
        200: {"model": ReadyReply, "description": "Ready."},
        400: {"model": ErrorReply, "description": MEANINGS[400]},
        503: {"model": NotReadyReply, "description": "Not ready: see Retry-After."},
    }

    @router.get("/readyz", responses=described)
    async def readyz() -> JSONResponse:
        """Tell whether the service is to be sent requests: caught up, and taking changes."""
        told = readiness(service)
        if told["status"] == "ready":
            return JSONResponse(told)
        return JSONResponse(told, 503, headers={"Retry-After": "2"})

    return router
