"""Routes that change what the learner knows, and those by which an operator tidies its folder."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from pydantic import Field, StrictBool
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from evergraph.online.folder.backup import BackedUp, backup
from evergraph.online.folder.status import Purged
from evergraph.server.bodies import (
    DeltaBody,
    ForgetBody,
    LabelsBody,
    Payload,
    UpsertBody,
    media_type,
    parse,
)
from evergraph.server.http import ARROW, JSON, RefusedError, answer
from evergraph.server.observability import audit, audit_change
from evergraph.server.schema import (
    KEY_HEADER,
    MEANINGS,
    AppliedReply,
    ErrorReply,
    UpsertedReply,
    accepts,
    answers,
    described,
)

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.server.auth import Guard
    from evergraph.server.service import Service

REFUSED = (401, 403, 404, 409, 413, 415, 422, 429, 503, 507)
TIDY_REFUSED = (401, 403, 413, 415, 422, 429, 503, 507)
CompactedReply = described(Purged, "Compacted")
TAR = "application/x-tar"
BACKED_UP = "x-evergraph-backup"  # what is in a backup: its last delta, its snapshot, its bytes
ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {TAR: {"schema": {"type": "string", "format": "binary"}}},
        "description": "Done.",
    },
    **{
        status: {"model": ErrorReply, "description": MEANINGS[status]}
        for status in (400, 401, 403, 422, 429, 503, 507)
    },
}


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


def change_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the routes for callers that may write."""
    router = APIRouter(
        prefix="/v1",
        tags=["learn"],
        dependencies=[Depends(guard.needs("write"))],
        responses=answers(AppliedReply, *REFUSED),
    )

    async def learn(request: Request, model: str, *kinds: str) -> Response:
        began, kind = time.monotonic(), media_type(request, JSON, *kinds)
        async with service.bodies.of(request, kind) as body:
            delta, scheme = await service.read_delta(body, model=model, kind=kind)
            delta = _keyed(request, delta)
            done = await service.change(delta, scheme)
        audit_change(request, delta, done.seq, time.monotonic() - began)
        return answer(done)

    @router.post("/deltas", openapi_extra=accepts(DeltaBody, ARROW) | KEY_HEADER)
    async def deltas(request: Request) -> Response:
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
    async def upsert(request: Request) -> Response:
        """Take in what is new of a delta, and pass over what is known already.

        The body is that of `/v1/deltas` without a key. Nodes may be known: their labels are taken
        in where they are others, their features stay as they are unless they are `updated`. Edges
        and labels may be known; edges that are to go, nodes to update and nodes to forget may not.
        """
        began, kind = time.monotonic(), media_type(request, JSON, ARROW)
        async with service.bodies.of(request, kind) as body:
            delta, scheme = await service.read_delta(body, model="upsert", kind=kind)
            if _keyed(request, delta).key is not None:
                raise RefusedError(422, "an upsert takes no key, since it counts once anyway")
            done = await service.upsert(delta, scheme)
        audit_change(request, delta, done.applied.seq, time.monotonic() - began)
        return answer(asdict(done.applied) | {"news": done.news})

    @router.post("/labels", openapi_extra=accepts(LabelsBody) | KEY_HEADER)
    async def labels(request: Request) -> Response:
        """Take in classes of nodes that are known already."""
        return await learn(request, "labels")

    @router.post("/forget", openapi_extra=accepts(ForgetBody) | KEY_HEADER)
    async def forget(request: Request) -> Response:
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


def upkeep_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the routes for callers that may write, and that may copy everything."""
    router = APIRouter(prefix="/v1", tags=["upkeep"])

    @router.post(
        "/compact",
        openapi_extra=accepts(CompactBody),
        responses=answers(CompactedReply, *TIDY_REFUSED),
        dependencies=[Depends(guard.needs("write"))],
    )
    async def compact(request: Request) -> Response:
        """Take a snapshot and drop what no recovery needs; with `now`, all that is not of now.

        Changes wait meanwhile, predictions do not. Sent again, it does what is still to be done.
        """
        media_type(request, JSON)
        async with service.bodies.of(request) as sent:
            body = parse(CompactBody, sent)
        _check(body)
        service.check_writes()
        done = await service.pools["compactions"].run(partial(_compacted, service, body))
        address = None if request.client is None else request.client.host
        audit("folder compacted", address=address, **body.model_dump(), **asdict(done))
        return answer(done)

    @router.get(
        "/backup",
        response_class=FileResponse,
        responses=ARCHIVE,
        dependencies=[Depends(guard.needs("follow"))],
    )
    async def backed_up(request: Request) -> FileResponse:
        """Hand out a backup of the folder as of one delta: a tar archive that `restore` reads.

        Whoever has it has everything, features and keys too, so the token must allow to `follow`,
        or to `write`. Nobody waits for it.
        """
        archive, done = await service.pools["backups"].run(partial(_backup, service))
        address = None if request.client is None else request.client.host
        audit("folder backed up", address=address, **asdict(done))
        return FileResponse(
            archive,
            media_type=TAR,
            headers={BACKED_UP: f"{done.seq} {done.snapshot} {done.bytes}"},
            background=BackgroundTask(shutil.rmtree, archive.parent, ignore_errors=True),
        )

    return router


def _backup(service: Service) -> tuple[Path, BackedUp]:
    """Make a backup beside the folder: that is where there is room for one."""
    aside = Path(tempfile.mkdtemp(dir=service.folder.path.parent, prefix=".evergraph-backup-"))
    try:
        archive = aside / "backup.tar"
        return archive, backup(service.folder.path, archive)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _check(body: CompactBody) -> None:
    for name in ("keys", "names"):
        if getattr(body, name) and not body.now:
            raise RefusedError(422, f'{name}: goes with "now": true only')


def _compacted(service: Service, body: CompactBody) -> Purged:
    if body.now:
        return service.folder.purge(keys=body.keys, names=body.names)
    return service.folder.compacted()
