"""The route by which an operator has a folder tidied while the service runs."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request
from pydantic import Field, StrictBool
from starlette.responses import JSONResponse

from evergraph.online.folder.purge import Purged
from evergraph.server.audit import audit
from evergraph.server.http import JSON, RefusedError, in_thread, media_type, read_body
from evergraph.server.json_body import parse
from evergraph.server.payloads import Payload
from evergraph.server.schema import accepts, answers, described

if TYPE_CHECKING:
    from evergraph.server.guard import Guard
    from evergraph.server.service import Service

REFUSED = (401, 403, 413, 415, 422, 429, 503, 507)
CompactedReply = described(Purged, "Compacted")


class CompactBody(Payload):
    """How thoroughly a folder is to be tidied."""

    now: StrictBool = Field(
        False,
        description="Leave one snapshot of the state of now, and nothing older: what was forgotten "
        "leaves the disk. Otherwise a snapshot is taken, and what no recovery needs is dropped.",
    )
    keys: StrictBool = Field(False, description="With `now`: drop all keys of deltas, too.")
    names: StrictBool = Field(
        False, description="With `now`: replace the names of classes that no node has any more."
    )


def upkeep_routes(service: Service, guard: Guard, *, follows: bool = False) -> APIRouter:
    """Return the route for callers that may write.

    follows: whether the folder follows that of a service somewhere else.
    """
    router = APIRouter(prefix="/v1", tags=["upkeep"], dependencies=[Depends(guard.needs("write"))])

    @router.post(
        "/compact",
        openapi_extra=accepts(CompactBody),
        responses=answers(CompactedReply, *REFUSED),
    )
    async def compact(request: Request) -> JSONResponse:
        """Take a snapshot and drop what no recovery needs; with `now`, all that is not of now.

        Changes wait meanwhile, predictions do not. Sent again, it does what is still to be done.
        """
        media_type(request, JSON)
        body = parse(CompactBody, await read_body(request, service.limits))
        _check(body, follows=follows)
        done = await in_thread(partial(_compacted, service, body), service.limits.seconds)
        address = None if request.client is None else request.client.host
        audit("folder compacted", address=address, **body.model_dump(), **asdict(done))
        return JSONResponse(asdict(done))

    return router


def _check(body: CompactBody, *, follows: bool) -> None:
    for name in ("keys", "names"):
        if getattr(body, name) and not body.now:
            raise RefusedError(422, f'{name}: goes with "now": true only')
    if body.names and follows:
        raise RefusedError(
            422, "names: are replaced at the service that this one follows, which then begins anew"
        )


def _compacted(service: Service, body: CompactBody) -> Purged:
    if body.now:
        done = service.folder.purge(keys=body.keys, names=body.names)
    else:
        done = service.folder.compacted()
    service.turn()  # names may be others
    return done
