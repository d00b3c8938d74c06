"""Routes by which an operator has a folder tidied or copied while the service runs."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from pydantic import Field, StrictBool
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, JSONResponse

from evergraph.online.folder.backup import BackedUp, backup
from evergraph.online.folder.purge import Purged
from evergraph.server.audit import audit
from evergraph.server.http import JSON, RefusedError, in_thread, media_type, read_body
from evergraph.server.json_body import parse
from evergraph.server.payloads import Payload
from evergraph.server.schema import MEANINGS, ErrorReply, accepts, answers, described

if TYPE_CHECKING:
    from evergraph.server.guard import Guard
    from evergraph.server.service import Service

REFUSED = (401, 403, 413, 415, 422, 429, 503, 507)
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


def upkeep_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the routes for callers that may write, and that may copy everything."""
    router = APIRouter(prefix="/v1", tags=["upkeep"])

    @router.post(
        "/compact",
        openapi_extra=accepts(CompactBody),
        responses=answers(CompactedReply, *REFUSED),
        dependencies=[Depends(guard.needs("write"))],
    )
    async def compact(request: Request) -> JSONResponse:
        """Take a snapshot and drop what no recovery needs; with `now`, all that is not of now.

        Changes wait meanwhile, predictions do not. Sent again, it does what is still to be done.
        """
        media_type(request, JSON)
        body = parse(CompactBody, await read_body(request, service.limits))
        _check(body)
        service.check_writes()
        done = await in_thread(partial(_compacted, service, body), service.limits.seconds)
        address = None if request.client is None else request.client.host
        audit("folder compacted", address=address, **body.model_dump(), **asdict(done))
        return JSONResponse(asdict(done))

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
        archive, done = await service.pools.backups.run(partial(_backup, service))
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
        done = service.folder.purge(keys=body.keys, names=body.names)
    else:
        done = service.folder.compacted()
    service.turn()  # names may be others
    return done
