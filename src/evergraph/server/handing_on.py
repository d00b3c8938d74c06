"""Routes for followers: the journal as it is written, and a snapshot to begin with.

Whoever follows gets everything the learner knows, features and keys too, so a token needs the right
``follow``, or ``write``.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from evergraph.online.folder.entries import entries_to_bytes
from evergraph.online.folder.markers import FORMAT_FILE
from evergraph.online.identifiers import LARGEST
from evergraph.server.http import in_thread
from evergraph.server.schema import MEANINGS, ErrorReply

if TYPE_CHECKING:
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.guard import Guard
    from evergraph.server.service import Service

ENTRIES, TAR = "application/octet-stream", "application/x-tar"
SEQ = "x-evergraph-seq"  # how many deltas there are
SET_ASIDE = "x-evergraph-set-aside"  # the last deltas that were: number and checksum
MOST_SET_ASIDE = 50
MOST_BYTES = 1 << 23  # of entries in one answer, unless a batch is larger
LONGEST = 60.0  # seconds that a follower may have an answer wait for
LOOK = 0.2  # seconds between two looks whether whoever asked is still there
PIECE, BLOCK = 1 << 20, tarfile.BLOCKSIZE


def handing_on_routes(service: Service, guard: Guard) -> APIRouter:
    """Return the routes for callers that may follow."""
    router = APIRouter(prefix="/v1", tags=["follow"], dependencies=[Depends(guard.needs("follow"))])

    @router.get("/journal", response_class=Response, responses=_answers(ENTRIES, 410, 422))
    async def journal(
        request: Request,
        after: int = Query(ge=0, le=LARGEST, description="The last delta that is known."),
        wait: float = Query(0.0, ge=0, le=LONGEST, description="Seconds to wait for another."),
    ) -> Response:
        """Hand on the deltas after one, in whole batches, each with a checksum."""
        left = min(wait, service.limits.seconds, service.limits.patience)
        while left > 0 and not await service.until(lambda: service.folder.seq > after, LOOK):
            left = 0.0 if await request.is_disconnected() else left - LOOK
            left = 0.0 if service.stopping.is_set() else left
        read = partial(service.folder.entries_after, after, most_bytes=MOST_BYTES)
        seq = service.folder.seq
        found = [] if seq <= after else await in_thread(read, service.limits.seconds)
        headers = {SEQ: str(seq)}
        if service.folder.status().set_aside:
            headers[SET_ASIDE] = await in_thread(
                partial(_set_aside, service.folder), service.limits.seconds
            )
        return Response(entries_to_bytes(found), media_type=ENTRIES, headers=headers)

    @router.get("/snapshot", response_class=Response, responses=_answers(TAR))
    async def snapshot() -> StreamingResponse:
        """Hand on what the learner was made with, and its newest snapshot if there is one: a tar
        archive."""
        files = await in_thread(partial(_opened, service.folder), service.limits.seconds)
        # With a length: whoever passes it on needs to know where it ends.
        length = {"content-length": str(_length(files))}
        return StreamingResponse(_archive(files), media_type=TAR, headers=length)

    return router


def _set_aside(folder: LearnerFolder) -> str:
    """Return what was set aside, so that whoever has it notices."""
    last = folder.set_aside_digests()[-MOST_SET_ASIDE:]
    return ",".join(f"{seq}:{digest}" for seq, digest in last)


def _answers(kind: str, *refusals: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer in bytes and of what may be refused."""
    schema = {"type": "string", "format": "binary"}
    said: dict[int | str, dict[str, Any]] = {
        200: {"content": {kind: {"schema": schema}}, "description": "Done."}
    }
    for status in (400, 401, 403, 429, 503, *refusals):
        said[status] = {"model": ErrorReply, "description": MEANINGS[status]}
    return said


Files = list[tuple[str, IO[bytes]]]


def _opened(folder: LearnerFolder) -> Files:
    """Return name and contents of all files that are handed on.

    All are opened before anything is sent: a snapshot that a newer one replaces meanwhile stays
    readable. One that is gone before it is opened has been replaced.
    """
    while True:
        newest = folder.newest_snapshot()
        inside = [] if newest is None else sorted(newest.iterdir())
        files: Files = []
        try:
            files.append((FORMAT_FILE, (folder.path / FORMAT_FILE).open("rb")))
            for path in inside:
                files.append((f"{path.parent.name}/{path.name}", path.open("rb")))
            return files
        except FileNotFoundError:
            for _, file in files:
                file.close()
            if folder.newest_snapshot() == newest:
                raise


def _length(files: Files) -> int:
    """Return how long an archive is: a block of facts before each file, and two empty ones."""
    sizes = (os.fstat(file.fileno()).st_size for _, file in files)
    return sum(BLOCK + size + -size % BLOCK for size in sizes) + 2 * BLOCK


def _archive(files: Files) -> Iterator[bytes]:
    """Yield a tar archive."""
    try:
        for name, file in files:
            about = tarfile.TarInfo(name)
            about.size = left = os.fstat(file.fileno()).st_size
            yield about.tobuf(tarfile.USTAR_FORMAT if about.size < 1 << 33 else tarfile.GNU_FORMAT)
            while left and (part := file.read(min(PIECE, left))):
                left -= len(part)
                yield part
            yield bytes(-about.size % BLOCK)
        yield bytes(2 * BLOCK)
    finally:
        for _, file in files:
            file.close()
