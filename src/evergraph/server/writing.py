"""Routes that change what the learner knows."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse

from evergraph.server.audit import audit_change
from evergraph.server.http import ARROW, JSON, RefusedError, media_type, read_body
from evergraph.server.payloads import DeltaBody, ForgetBody, LabelsBody, UpsertBody
from evergraph.server.schema import KEY_HEADER, AppliedReply, UpsertedReply, accepts, answers

if TYPE_CHECKING:
    from evergraph.datasets.columns.scheme import Scheme
    from evergraph.online.delta import Delta
    from evergraph.server.guard import Guard
    from evergraph.server.service import Service

REFUSED = (401, 403, 404, 409, 413, 415, 422, 429, 503, 507)


def writing_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the routes for callers that may write."""
    router = APIRouter(
        prefix="/v1",
        tags=["learn"],
        dependencies=[Depends(guard.needs("write"))],
        responses=answers(AppliedReply, *REFUSED),
    )

    async def read(request: Request, model: str, *kinds: str) -> tuple[Delta, Scheme | None]:
        kind = media_type(request, JSON, *kinds)
        body = await read_body(request, service.limits)
        delta, scheme = await service.read_delta(body, model=model, kind=kind)
        return _keyed(request, delta), scheme

    async def learn(request: Request, model: str, *kinds: str) -> JSONResponse:
        began = time.monotonic()
        delta, scheme = await read(request, model, *kinds)
        done = await service.change(delta, scheme)
        audit_change(request, delta, done.seq, time.monotonic() - began)
        return JSONResponse(asdict(done))

    @router.post("/deltas", openapi_extra=accepts(DeltaBody, ARROW) | KEY_HEADER)
    async def deltas(request: Request) -> JSONResponse:
        """Take in new nodes and edges, changes, late labels and what is to go, whole or not at all.

        JSON, or Arrow IPC streams one behind the other: a table of nodes (`id`, `features`,
        `label`, `type` if they have any), of edges (`source`, `target`, `weight` and `relation` if
        they have any), of late labels (`id`, `label`), of nodes to forget (`id`). A column `op` in
        a table of nodes says `add`, `update` or `forget`, in a table of edges `add` or `remove`.
        Buffers must not be compressed. In JSON, `rows` may stand for `nodes`, `features` and
        `labels`: objects with `id`, `label` and columns of any kind, read as the first rows or the
        first table of this learner were.
        """
        return await learn(request, "delta", ARROW)

    @router.post(
        "/upsert",
        openapi_extra=accepts(UpsertBody, ARROW),
        responses=answers(UpsertedReply, *REFUSED),
    )
    async def upsert(request: Request) -> JSONResponse:
        """Take in what is new of a delta, and pass over what is known already.

        The body is that of `/v1/deltas` without a key. Nodes may be known: their labels are taken
        in where they are others, their features stay as they are unless they are `updated`. Edges
        and labels may be known; edges that are to go, nodes to update and nodes to forget may not.
        """
        began = time.monotonic()
        delta, scheme = await read(request, "upsert", ARROW)
        if delta.key is not None:
            raise RefusedError(422, "an upsert takes no key, since it counts once anyway")
        done = await service.upsert(delta, scheme)
        audit_change(request, delta, done.applied.seq, time.monotonic() - began)
        return JSONResponse(asdict(done.applied) | {"news": asdict(done.news)})

    @router.post("/labels", openapi_extra=accepts(LabelsBody) | KEY_HEADER)
    async def labels(request: Request) -> JSONResponse:
        """Take in classes of nodes that are known already."""
        return await learn(request, "labels")

    @router.post("/forget", openapi_extra=accepts(ForgetBody) | KEY_HEADER)
    async def forget(request: Request) -> JSONResponse:
        """Remove nodes with their edges and all they taught.

        Their part in how columns are read, as the first table settled it, stays.
        """
        return await learn(request, "forget")

    return router


def _keyed(request: Request, delta: Delta) -> Delta:
    """Return the delta with its key, from its field or from the header."""
    header = request.headers.get("idempotency-key")
    if header is None:
        return delta
    if not re.fullmatch(r"[!-~]{1,200}", header):
        rule = "must have 1 to 200 characters of ASCII without blanks"
        raise RefusedError(422, f"Idempotency-Key {rule}, not {header[:40]!r}")
    if delta.key is not None and delta.key != header:
        raise RefusedError(422, f"key must be {header!r} as in Idempotency-Key, not {delta.key!r}")
    return replace(delta, key=header)
