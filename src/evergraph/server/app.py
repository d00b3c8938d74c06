"""The application: routes around one learner."""

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

PAUSE = 0.01  # seconds between two looks at the journal
PATIENCE = 1.0  # seconds that a look has to end in
log = logging.getLogger(__name__)
ABOUT = """A classifier for the nodes of a graph that grows.

A request that is refused changes nothing, and is answered with `{"error": "one sentence"}`."""


class JournalFollower(Thread):
    """Brings a service that only reads up to what another process writes, delta by delta.

    Where that fails the process is told to stop: whoever started it may start it again, with what
    is on the disk by then.

    Args:
        service: of a folder that was opened to read.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(name="evergraph-follower", daemon=True)
        self._service = service
        self._closing = Event()

    def run(self) -> None:
        """Look for deltas until it is closed; a look that finds none costs microseconds."""
        while not self._closing.wait(PAUSE):
            try:
                self._service.follow()
            except Exception as error:
                if self._closing.is_set():  # the folder was closed under it
                    return
                unforeseen = None if isinstance(error, EvergraphError) else error
                log.error("this process cannot follow any more: %s", error, exc_info=unforeseen)
                self._service.fail()
                return

    def close(self) -> None:
        """Stop; what is being applied is waited for, but not long."""
        self._closing.set()
        if self.is_alive():
            self.join(PATIENCE)


class Application(FastAPI):
    """FastAPI, observed from outside: what fails in it is counted and has an id as well.

    Args:
        metrics: what counts requests.
        access_log: whether a line of the log is written for every request.
        given: as FastAPI takes it.
    """

    def __init__(self, *, metrics: Metrics, access_log: bool, **given: Any) -> None:
        super().__init__(**given)
        self._metrics, self._access_log = metrics, access_log

    def build_middleware_stack(self) -> ASGIApp:
        """Return what answers a request."""
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

    It owns the folder from here on: when the application stops, changes that wait are finished
    and the folder is closed.

    Args:
        folder: open for writing, or to read: then changes are refused, and what another process
            writes is followed.
        tokens: who may read and write; None lets this machine do both.
        limits: how much one request may ask for.
        access_log: whether a line of the log is written for every request.
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
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # they would lead to whatever Host says
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
