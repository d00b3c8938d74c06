"""Routes that change the learner, and the operator's routes: compaction and backup."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Depends, Query, Request
from pydantic import Field, StrictBool
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from evergraph.core.errors import KeyReusedError, UnknownNodeError
from evergraph.core.safe_files import scratch_beside
from evergraph.graphs.validation import REPEATED
from evergraph.online.delta import Delta
from evergraph.online.folder.backup import BackedUp, backup
from evergraph.online.folder.markers import Purged
from evergraph.online.upsert import Upserted
from evergraph.server import http, schema
from evergraph.server.bodies import (
    ColumnsOfBody,
    DeltaBody,
    ForgetBody,
    LabelsBody,
    Payload,
    RefitBody,
    UpsertBody,
    parse,
)
from evergraph.server.http import (
    ARROW,
    JSON,
    IdRoute,
    LeanRoute,
    RefusedError,
    address_of,
    answer,
    check_parameters,
    media_type,
)
from evergraph.server.observability import audit, audit_change
from evergraph.server.service import ids_of
from evergraph.tables.choices import Columns
from evergraph.tables.names import OF_EDGES, OF_NODES

if TYPE_CHECKING:
    from fastapi import APIRouter

    from evergraph.server.auth import Guard
    from evergraph.server.service import Service

REFUSED = (401, 403, 404, 409, 413, 415, 422, 429, 503, 507)
UPKEEP_REFUSED = (401, 403, 413, 415, 422, 429, 503, 507)
CompactedReply = schema.described(Purged, "Compacted")
TAR = "application/x-tar"
BACKED_UP = "x-evergraph-backup"  # header with a backup's last delta, snapshot and size in bytes
REPEATED_EDGES = schema.query_parameter(
    "repeated",
    "What becomes of an edge that the body lists several times, in an undirected graph also the "
    "other way round: its `last` weight counts, or the `sum` or `mean` of its weights, or the "
    "`count` of its rows, or the body is refused. A known edge gets the new weight, whatever the "
    "rule.",
    enum=[*REPEATED],
    default="last",
)
OF_COLUMNS = (
    schema.query_parameter(
        "columns",
        "Kinds of columns that should not be guessed, by name as JSON, such as "
        '`{"zip":"category"}`; the first body decides.',
    ),
    *(
        schema.query_parameter(name, f"The name of the column `{name}` in rows or Arrow tables.")
        for name in (*OF_NODES, *OF_EDGES)
    ),
)
ARCHIVE: dict[int | str, dict[str, Any]] = {
    **schema.answers(schema.ErrorReply, 401, 403, 422, 429, 503, 507),
    200: {
        "content": {TAR: {"schema": {"type": "string", "format": "binary"}}},
        "description": "Done.",
    },
}


class CompactBody(Payload):
    """Options of a compaction."""

    now: StrictBool = Field(
        False,
        description="Keep only a snapshot of the current state and erase all history, including "
        "forgotten nodes and classes without nodes. Otherwise take a snapshot, trim the journal.",
    )
    keys: StrictBool = Field(False, description="With `now`: drop all delta keys, too.")


def change_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the routes for callers with write access."""
    router = http.router(
        Depends(guard.needs("write")),
        prefix="/v1",
        tags=["learn"],
        responses=schema.answers(schema.AppliedReply, *REFUSED),
        route_class=LeanRoute,
    )

    async def learn(request: Request, model: str, *kinds: str) -> Response:
        allowed = ("repeated", "columns", *OF_NODES, *OF_EDGES) if kinds else ()
        check_parameters(request.scope["query_string"], allowed)
        repeated = request.query_params.get("repeated", "last")
        if repeated not in REPEATED:
            rule = f"must be one of {', '.join(REPEATED)}"
            raise RefusedError(422, f"repeated {rule}, not {repeated[:40]!r}")
        guard.admit(request, "write")
        began = time.monotonic()
        kind = media_type(request, JSON, *kinds)
        async with service.bodies.received(request, kind) as body:
            read = partial(
                service.reader.read,
                body,
                model=model,
                kind=kind,
                repeated=repeated,
                own_columns=_columns_of_body(request),
            )
            delta = await service.pools["bodies"].run(read)
            delta = _with_key(request, delta)
            upsert = model == "upsert"
            if upsert and delta.key is not None:
                raise RefusedError(422, "an upsert takes no key: repeating it changes nothing")
            result = await service.change(delta, upsert=upsert)
            applied = asdict(result)
            if isinstance(result, Upserted):
                applied = applied["applied"] | {"news": applied["news"]}
        audit_change(request, delta, applied["seq"], time.monotonic() - began)
        return answer(applied)

    @router.post(
        "/deltas",
        openapi_extra=schema.accepts(DeltaBody, ARROW)
        | schema.parameters(schema.KEY, REPEATED_EDGES, *OF_COLUMNS),
    )
    async def deltas(request: Request) -> Response:
        """Apply a delta, all of it or nothing: additions, changes, late labels, removals.

        The body is JSON, or Arrow IPC streams one after the other: a table of nodes (`id`,
        `features`, optionally `label` and `type`), of edges (`source`, `target`, optionally
        `weight` and `relation`), of late labels (`id`, `label`), of nodes to forget (`id`). A
        column `op` holds `add`, `update` or `forget` in a table of nodes, `add` or `remove` in a
        table of edges. In JSON, `rows` may replace `nodes`, `features` and `labels`: objects with
        `id`, `label` and columns of any kind, read like the first rows of this learner.
        """
        return await learn(request, "delta", ARROW)

    @router.post(
        "/upsert",
        openapi_extra=schema.accepts(UpsertBody, ARROW)
        | schema.parameters(REPEATED_EDGES, *OF_COLUMNS),
        responses=schema.answers(schema.UpsertedReply, *REFUSED),
    )
    async def upsert(request: Request) -> Response:
        """Apply the new part of a delta, and skip what is known already.

        The body is that of `/v1/deltas` without a key. Known nodes get labels that differ from
        theirs; their features change only if they are `updated`. Known edges and labels are
        skipped, and so are missing edges to remove and missing nodes to update or forget.
        """
        return await learn(request, "upsert", ARROW)

    @router.post(
        "/labels", openapi_extra=schema.accepts(LabelsBody) | schema.parameters(schema.KEY)
    )
    async def labels(request: Request) -> Response:
        """Label known nodes."""
        return await learn(request, "labels")

    @router.post(
        "/forget", openapi_extra=schema.accepts(ForgetBody) | schema.parameters(schema.KEY)
    )
    async def forget(request: Request) -> Response:
        """Forget nodes: remove them, their edges and all that was learned from them.

        How columns are read stays as fixed by the first table, even if it held these nodes.
        """
        return await learn(request, "forget")

    @router.post("/refit", openapi_extra=schema.accepts(RefitBody) | schema.parameters(schema.KEY))
    async def refit(request: Request) -> Response:
        """Learn everything again, so that the order in which it came no longer matters."""
        return await learn(request, "refit")

    async def forget_node(
        request: Request,
        node: str,
        integer: bool = Query(False, description="Whether the id is an integer, not a string."),
    ) -> Response:
        """Forget one node, as `/v1/forget` does.

        Without `integer`, the string id is tried first, then the integer id of the same digits.
        """
        began = time.monotonic()
        first, second = ids_of(node, integer)
        delta = _with_key(request, Delta(forgotten=(first,)))
        try:
            applied = asdict(await service.change(delta))
        except (UnknownNodeError, KeyReusedError):  # the key may be that of the integer id
            if second is None:
                raise
            delta = replace(delta, forgotten=(second,))
            applied = asdict(await service.change(delta))
        audit_change(request, delta, applied["seq"], time.monotonic() - began)
        return answer(applied)

    for path in ("/nodes/{node:path}", "/nodes"):  # as of the routes that read
        router.add_api_route(
            path,
            forget_node,
            methods=["DELETE"],
            route_class_override=IdRoute,
            openapi_extra=schema.parameters(schema.KEY),
        )
    return router


def _columns_of_body(request: Request) -> ColumnsOfBody:
    """Return what the query says about columns."""
    parameters = request.query_params
    names = {name: parameters[name] for name in (*OF_NODES, *OF_EDGES) if name in parameters}
    if "columns" not in parameters:
        return ColumnsOfBody(names)
    try:
        kinds = json.loads(parameters["columns"])
    except (ValueError, RecursionError):
        kinds = None
    if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
        raise RefusedError(422, 'columns must be kinds by name as JSON, such as {"zip":"category"}')
    return ColumnsOfBody(names, Columns(kinds=kinds))


def _with_key(request: Request, delta: Delta) -> Delta:
    header = request.headers.get("idempotency-key")
    if header is None:
        return delta
    if not re.fullmatch(r"[!-~]{1,200}", header):
        rule = "must have 1 to 200 ASCII characters without spaces"
        raise RefusedError(422, f"Idempotency-Key {rule}, not {header[:40]!r}")
    if delta.key is not None and delta.key != header:
        raise RefusedError(422, f"key must be {header!r} as in Idempotency-Key, not {delta.key!r}")
    return replace(delta, key=header)


def upkeep_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the operator's routes: compaction needs write access, a backup ``follow``."""
    router = http.router(prefix="/v1", tags=["upkeep"])

    @router.post(
        "/compact",
        openapi_extra=schema.accepts(CompactBody),
        responses=schema.answers(CompactedReply, *UPKEEP_REFUSED),
        dependencies=[Depends(guard.needs("write"))],
    )
    async def compact(request: Request) -> Response:
        """Snapshot the learner and trim its journal; with `now`, erase all history.

        Changes wait meanwhile, predictions do not. It is safe to send again after a failure.
        """
        media_type(request, JSON)
        async with service.bodies.received(request) as content:
            body = parse(CompactBody, content)
        if body.keys and not body.now:
            raise RefusedError(422, 'keys: requires "now": true')
        service.check_writes()
        purge = partial(service.folder.purge, keys=body.keys)
        compact_folder = purge if body.now else service.folder.compacted
        done = await service.pools["compactions"].run(compact_folder)
        audit("folder compacted", address=address_of(request), **body.model_dump(), **asdict(done))
        return answer(done)

    @router.get(
        "/backup",
        response_class=FileResponse,
        responses=ARCHIVE,
        dependencies=[Depends(guard.needs("follow"))],
    )
    async def backed_up(request: Request) -> FileResponse:
        """Download a consistent backup of the folder: a tar archive for `evergraph restore`.

        It holds everything, features and keys included, so the token must allow `follow` or
        `write`. Other requests are served meanwhile.
        """
        archive, done, scratch = await service.pools["backups"].run(partial(_backup, service))
        audit("folder backed up", address=address_of(request), **asdict(done))
        return FileResponse(
            archive,
            media_type=TAR,
            headers={BACKED_UP: f"{done.seq} {done.snapshot} {done.bytes}"},
            background=BackgroundTask(scratch.close),
        )

    return router


def _backup(service: Service) -> tuple[Path, BackedUp, ExitStack]:
    """Write a backup beside the folder; closing the last of what is returned removes it."""
    with ExitStack() as scratch:
        archive = scratch.enter_context(scratch_beside(service.folder.path)) / "backup.tar"
        return archive, backup(service.folder.path, archive), scratch.pop_all()
