"""The application: routes around one learner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from fastapi import Depends, FastAPI

from evergraph.core.versions import own_version
from evergraph.server.following import Following, JournalSteps
from evergraph.server.guard import Guard
from evergraph.server.handing_on import handing_on_routes
from evergraph.server.holding import Holding
from evergraph.server.http import answer_failures
from evergraph.server.leader import Leader, LeaderSteps
from evergraph.server.limits import Limits
from evergraph.server.metrics import Metrics, Observed
from evergraph.server.parameters import only_known
from evergraph.server.passing import WRITERS, WRITES, Passing, Target
from evergraph.server.predicting import Predicting
from evergraph.server.readiness import readiness_routes
from evergraph.server.reading import page_routes, reading_routes
from evergraph.server.service import Service
from evergraph.server.turns import Turns
from evergraph.server.upkeep import upkeep_routes
from evergraph.server.watching import Watching
from evergraph.server.writing import writing_routes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.place import Place
    from evergraph.server.tokens import CurrentTokens, Tokens

ABOUT = """A classifier for the nodes of a graph that grows.

A request that is refused changes nothing, and is answered with `{"error": "one sentence"}`."""


class Application(FastAPI):
    """FastAPI behind what is answered before it, or passed on.

    Attributes:
        front: what requests come to first; at its end is FastAPI itself (``behind``).
    """

    front: ASGIApp

    async def behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as FastAPI does."""
        await super().__call__(scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.front(scope, receive, send)


def create_app(
    folder: LearnerFolder,
    *,
    tokens: Tokens | CurrentTokens | None = None,
    limits: Limits | None = None,
    place: Place | None = None,
    leader: Leader | None = None,
    access_log: bool = False,
) -> Application:
    """Return the service for a learner's folder.

    It owns the folder from here on: when the application stops, changes that wait are finished
    and the folder is closed.

    Args:
        folder: open for writing; to read, if it is that of a replica.
        tokens: who may read and write; None lets this machine do both.
        limits: how much one request may ask for.
        place: which of several processes this is; None where it is the only one.
        leader: the service somewhere else that the folder follows; changes are passed on to it.
        access_log: whether a line of the log is written for every request.
    """
    limits = Limits() if limits is None else limits
    metrics, guard = Metrics() if place is None else place.counted(), Guard(tokens, limits)
    service = Service(folder, limits, place=place, leader=leader)
    watching = Watching(service, leader)
    following = _following(service, place, leader, metrics)

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
        title="evergraph",
        version=own_version(),
        description=ABOUT,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # they would lead to whatever Host says
        dependencies=[Depends(only_known)],
        lifespan=lifespan,
    )
    app.state.following, app.state.stopping = following, service.stopping
    front: ASGIApp = Predicting(app.behind, service=service, guard=guard)
    if folder.readonly and place is not None:
        routes = {**WRITES, **WRITERS}
        front = Passing(front, target=place.writer, routes=routes, guard=guard, limits=limits)
    elif leader is not None:
        target = Target(leader.url, leader.ca)
        front = Passing(front, target=target, routes=WRITES, guard=guard, limits=limits)
    held = Holding(front, most=limits.held)
    turns = Turns(held, most=limits.at_once)
    app.front = Observed(turns, metrics=metrics, access_log=access_log)
    app.include_router(writing_routes(service, guard))
    app.include_router(reading_routes(service, guard, metrics, place, watching))
    app.include_router(handing_on_routes(service, guard))
    app.include_router(upkeep_routes(service, guard, follows=leader is not None))
    app.include_router(readiness_routes(service, leader))
    app.include_router(page_routes())
    answer_failures(app, folder.path)
    return app


def _following(
    service: Service, place: Place | None, leader: Leader | None, metrics: Metrics
) -> Following | None:
    """Return the thread that keeps a process up to date, None for one that is sent changes."""
    if place is not None and service.folder.readonly:
        return Following(JournalSteps(service, place, metrics))
    return None if leader is None else Following(LeaderSteps(service, leader))
