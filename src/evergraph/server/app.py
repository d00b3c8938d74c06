"""The application: routes around one learner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from fastapi import FastAPI

from evergraph.core.versions import own_version
from evergraph.server.guard import Guard
from evergraph.server.http import answer_failures
from evergraph.server.limits import Limits
from evergraph.server.metrics import Metrics, Observed
from evergraph.server.predicting import Predicting
from evergraph.server.reading import page_routes, reading_routes
from evergraph.server.service import Service
from evergraph.server.writing import writing_routes

if TYPE_CHECKING:
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.tokens import Tokens

ABOUT = """A classifier for the nodes of a graph that grows.

A request that is refused changes nothing, and is answered with `{"error": "one sentence"}`."""


def create_app(
    folder: LearnerFolder, *, tokens: Tokens | None = None, limits: Limits | None = None
) -> FastAPI:
    """Return the service for a learner's folder.

    It owns the folder from here on: when the application stops, changes that wait are finished
    and the folder is closed.

    Args:
        folder: open for writing.
        tokens: who may read and write; None lets this machine do both.
        limits: how much one request may ask for.
    """
    limits = Limits() if limits is None else limits
    metrics, guard = Metrics(), Guard(tokens, limits)
    service = Service(folder, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="evergraph",
        version=own_version(),
        description=ABOUT,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Predicting, service=service, guard=guard)
    app.add_middleware(Observed, metrics=metrics)  # around the one before
    app.include_router(writing_routes(service, guard))
    app.include_router(reading_routes(service, guard, metrics))
    app.include_router(page_routes())
    answer_failures(app)
    return app
