"""The ASGI application: all routes around one learner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

import anyio
from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware

from evergraph.core.packages import own_version
from evergraph.online.graph.neighbour_lists import is_compiled
from evergraph.server.auth import Guard
from evergraph.server.changes import change_routes, upkeep_routes
from evergraph.server.http import Limits
from evergraph.server.observability import Metrics, Observed, ServiceCollector
from evergraph.server.routes import page_routes, reading_routes
from evergraph.server.service import Service

if TYPE_CHECKING:
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.auth import Tokens

# Modules that the first deltas of a large graph and the first table would load. Nobody is answered
# while an extension module is loaded, which for all of these takes up to a second.
NEEDED_LATER = (
    "scipy.special",
    "pyarrow.compute",
    "pandas",
    "pyarrow.pandas_compat",
    "evergraph.online.graph.live_kernels",
)
ABOUT = """A classifier for the nodes of a growing graph.

A rejected request changes nothing; its answer is `{"error": "one sentence"}`."""


def create_app(
    folder: LearnerFolder,
    *,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    access_log: bool = False,
) -> FastAPI:
    """Return the service for a learner's folder, which it closes on shutdown, after queued changes.

    folder: open for writing; or read-only, to follow the process that writes; tokens: who may read
    and write; None allows both to callers on this machine; access_log: whether every request is
    logged.
    """
    limits = Limits() if limits is None else limits
    metrics, guard = Metrics(), Guard(tokens, limits)
    service = Service(folder, limits)
    status = service.view.status()
    if is_compiled(status.edges * (1 + status.undirected)):
        for name in NEEDED_LATER:
            with suppress(ImportError):  # an extra that is not installed
                import_module(name)
        import_module("numba.core.registry").cpu_target.target_context.refresh()
    metrics.registry.register(ServiceCollector(service))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="evergraph",
        # FastAPI would read the environment at every request, and metrics are made here.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        version=own_version(),
        description=ABOUT,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # redirects would go to whatever the Host header names
        lifespan=lifespan,
    )
    app.state.failed, app.state.stopping = service.failed, service.stopping
    for router in (
        reading_routes(service, guard, metrics),
        change_routes(service, guard),
        upkeep_routes(service, guard),
        page_routes(),
    ):
        # Not ``include_router``, which keeps routers nested and matches every request twice.
        app.router.routes += router.routes
    # In place of FastAPI's layers, which would answer failures in three places. Its routes need the
    # exit stack.
    app.build_middleware_stack = lambda: Observed(  # type: ignore[method-assign]
        AsyncExitStackMiddleware(app.router),
        metrics=metrics,
        access_log=access_log,
        folder=folder.path,
    )
    return app
