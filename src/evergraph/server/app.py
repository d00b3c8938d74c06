"""The ASGI application: all routes around one learner."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import anyio
from fastapi import Depends, FastAPI

from evergraph.core.errors import EvergraphError
from evergraph.core.extras import own_version
from evergraph.server.auth import Guard
from evergraph.server.changes import change_routes, upkeep_routes
from evergraph.server.http import answer_failures, only_known
from evergraph.server.limits import Limits
from evergraph.server.observability import Metrics, Observed, ServiceCollector
from evergraph.server.routes import page_routes, reading_routes
from evergraph.server.service import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.auth import Tokens

PAUSE = 0.01  # seconds between two polls of the journal
PATIENCE = 1.0  # seconds to wait for the last poll when closing
log = logging.getLogger(__name__)
ABOUT = """A classifier for the nodes of a growing graph.

A rejected request changes nothing; its answer is `{"error": "one sentence"}`."""


class JournalFollower(Thread):
    """Thread that keeps a read-only service up to date with the process that writes.

    If it fails, the process stops; its supervisor can restart it from what is on disk by then.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(name="evergraph-follower", daemon=True)
        self._service = service
        self._closing = Event()

    def run(self) -> None:
        """Poll for deltas until closed; a poll that finds none costs microseconds."""
        while not self._closing.wait(PAUSE):
            try:
                self._service.follow()
            except Exception as error:
                if self._closing.is_set():  # the folder was closed while polling
                    return
                unforeseen = None if isinstance(error, EvergraphError) else error
                log.error("cannot follow the journal any more: %s", error, exc_info=unforeseen)
                self._service.fail()
                return

    def close(self) -> None:
        """Stop, waiting briefly for a delta that is being applied."""
        self._closing.set()
        if self.is_alive():
            self.join(PATIENCE)


class Application(FastAPI):
    """FastAPI inside ``Observed``, so that even unexpected failures are counted and have an id."""

    def __init__(self, *, metrics: Metrics, access_log: bool, **options: Any) -> None:
        super().__init__(**options)
        self._metrics, self._access_log = metrics, access_log

    def build_middleware_stack(self) -> ASGIApp:
        """Return FastAPI's own stack, observed."""
        inner = super().build_middleware_stack()
        return Observed(inner, metrics=self._metrics, access_log=self._access_log)


def create_app(
    folder: LearnerFolder,
    *,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    access_log: bool = False,
) -> Application:
    """Return the service for a learner's folder.

    The application owns the folder from here on: on shutdown it finishes queued changes and closes
    the folder.

    Args:
        folder: open for writing; or read-only, in which case changes are rejected and those of the
            writing process are followed.
        tokens: who may read and write; None allows both to callers on this machine.
        limits: of requests and connections.
        access_log: whether every request is logged.
    """
    limits = Limits() if limits is None else limits
    metrics, guard = Metrics(), Guard(tokens, limits)
    service = Service(folder, limits)
    metrics.registry.register(ServiceCollector(service))
    following = JournalFollower(service) if folder.readonly else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if following is not None:
            following.start()
        try:
            yield
        finally:
            if following is not None:
                await anyio.to_thread.run_sync(following.close)
            await anyio.to_thread.run_sync(service.close)

    app = Application(
        metrics=metrics,
        access_log=access_log,
        title="evergraph",
        version=own_version(),
        description=ABOUT,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # redirects would go to whatever the Host header names
        dependencies=[Depends(only_known)],
        lifespan=lifespan,
    )
    app.state.failed, app.state.stopping = service.failed, service.stopping
    app.include_router(reading_routes(service, guard, metrics))
    app.include_router(change_routes(service, guard))
    app.include_router(upkeep_routes(service, guard))
    app.include_router(page_routes())
    answer_failures(app, folder.path)
    return app
