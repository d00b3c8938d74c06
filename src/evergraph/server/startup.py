"""Start-up of a service: it answers health checks while the learner is being recovered."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from evergraph.server.http import HEADERS, answer
from evergraph.server.observability import HEADER, request_id_of

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

    from evergraph.online.folder.recovery import Replaying

SHUTDOWN_SECONDS = 1.0  # to wait for a recovery on shutdown, or for the service manager's socket
NOTIFY_SECONDS = 5.0  # between two notifications if no watchdog needs more
RETRY_LATER = {"Retry-After": "2"}  # seconds
EXTENSION_SECONDS = 60  # by which each notification extends the start-up timeout
RECOVERING = "the service is recovering from disk: try again later"
log = logging.getLogger(__name__)
Make = Callable[[Callable[["Replaying"], None]], "FastAPI"]


@dataclass(frozen=True)
class Notifier:
    """Notifies a service manager such as systemd; does nothing if there is none.

    >>> Notifier.from_environment({"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "3000000"})
    Notifier(address='/run/notify', watchdog=3.0)
    """

    address: str | None = None  # of its socket; a leading ``@`` names an abstract one
    watchdog: float | None = None  # seconds within which the process must ping it

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Notifier:
        """Return the notifier that the environment describes."""
        is_for_this_process = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
        interval = environment.get("WATCHDOG_USEC", "") if is_for_this_process else ""
        watchdog = int(interval) / 1e6 if interval.isdigit() and int(interval) else None
        return cls(environment.get("NOTIFY_SOCKET") or None, watchdog)

    @property
    def pause(self) -> float:
        """Seconds between two notifications: a third of what the watchdog allows."""
        return NOTIFY_SECONDS if self.watchdog is None else min(NOTIFY_SECONDS, self.watchdog / 3)

    def notify(self, **facts: object) -> None:
        """Send a notification; a failure is only logged."""
        if self.address is None:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        text = "\n".join(f"{name}={value}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SHUTDOWN_SECONDS)
                sender.sendto(text.encode(), address)
        except OSError as error:
            log.debug("the service manager does not listen: %s", error)


class Abandoned(BaseException):
    """Ends a recovery on shutdown; not an ``Exception``, so that nothing on the way catches it."""


class Starting:
    """Application that opens a learner's folder on a thread and answers health checks meanwhile.

    Other requests are answered with 503 until the folder is open; from then on ``app`` answers. If
    the folder cannot be opened the server stops, and ``failed`` says why. If it stops before, the
    thread is ``abandoned``: the process ends without waiting for it, as in a crash.

    Args:
        make: opens the folder and returns the application, given a callback for progress.
        notifier: of a service manager; None uses the one that the environment names.
    """

    def __init__(self, make: Make, *, notifier: Notifier | None = None) -> None:
        self._make = make
        self._notifier = Notifier.from_environment() if notifier is None else notifier
        self.app: FastAPI | None = None
        self.failed: BaseException | None = None
        self.abandoned = False
        self.state: Any = SimpleNamespace(stopping=Event(), failed=Event())
        self._opened_app: FastAPI | None = None
        self._progress: Replaying | None = None
        self._logged = False
        self._server: uvicorn.Server | None = None
        self._url = ""

    def set_server(self, server: uvicorn.Server, url: str) -> None:
        """Set the server of this application, and its address."""
        self._server, self._url = server, url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif self.app is not None:
            await self.app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = answer({"error": RECOVERING}, 503, RETRY_LATER)
        if scope.get("path") == "/healthz":
            response = answer({"status": "ok"})
        elif scope.get("path") == "/readyz":
            response = answer({"status": "recovering", **self.progress()}, 503, RETRY_LATER)
        response.raw_headers += [(HEADER, request_id_of(scope).encode()), *HEADERS]
        await response(scope, receive, send)

    def progress(self) -> dict[str, Any]:
        """Return how many deltas have been replayed, of how many, and the estimated time left."""
        progress = self._progress
        if progress is None:
            return {"done": 0, "of": 0, "seconds_left": None}
        is_estimated = progress.seconds or progress.done == progress.of
        seconds_left = round(progress.seconds, 1) if is_estimated else None
        return {"done": progress.done, "of": progress.of, "seconds_left": seconds_left}

    def _on_progress(self, progress: Replaying) -> None:
        """Record the recovery's progress; called by its thread, which ends here on shutdown."""
        self._progress = progress
        if self.state.stopping.is_set():
            raise Abandoned
        if progress.of and not self._logged:
            self._logged = True
            deltas = "1 delta" if progress.of == 1 else f"{progress.of} deltas"
            log.info("recovering at %s: %s since the snapshot", self._url, deltas)

    def _open(self, opened: Callable[[], None]) -> None:
        """Open the folder, then call ``opened``; runs on a thread."""
        try:
            self._opened_app = self._make(self._on_progress)
            # Exempt what is loaded by now from garbage collection: a full pass took 180 ms.
            gc.collect()
            gc.freeze()
        except Abandoned:
            pass
        except BaseException as error:  # raised again by whoever started the service
            self.failed = error
        with suppress(RuntimeError):  # the loop is closed
            opened()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        loop, opened = asyncio.get_running_loop(), asyncio.Event()

        def set_opened() -> None:
            loop.call_soon_threadsafe(opened.set)

        args = (set_opened,)
        Thread(target=self._open, args=args, name="evergraph-opening", daemon=True).start()
        stop = asyncio.Event()
        answering = loop.create_task(self._answer_until(opened, stop))
        notifying = loop.create_task(self._notify_repeatedly())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._notifier.notify(STOPPING=1, STATUS="stopping")
        self.state.stopping.set()
        if not opened.is_set():
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(opened.wait(), SHUTDOWN_SECONDS)
        self.abandoned = not opened.is_set()
        stop.set()
        if self.abandoned:
            answering.cancel()
        else:
            await answering
        notifying.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer_until(self, opened: asyncio.Event, stop: asyncio.Event) -> None:
        """Wait for the application proper, and let it answer until the end."""
        await opened.wait()
        app = self._opened_app
        if app is None:
            if self._server is not None:
                self._server.should_exit = True
            return
        async with app.router.lifespan_context(app):
            stopping = self.state.stopping.is_set()
            self.state, self.app = app.state, app
            if stopping:
                self.state.stopping.set()
            else:
                log.info("listening on %s", self._url)
                self._notifier.notify(READY=1, STATUS="ready")
            await stop.wait()

    async def _notify_repeatedly(self) -> None:
        """Ping the watchdog, and extend the start-up timeout during a recovery."""
        while True:
            facts: dict[str, object] = {} if self._notifier.watchdog is None else {"WATCHDOG": 1}
            if self.app is None and not self.state.stopping.is_set():
                progress = self.progress()
                facts["EXTEND_TIMEOUT_USEC"] = EXTENSION_SECONDS * 1_000_000
                facts["STATUS"] = (
                    f"recovering: {progress['done']} of {progress['of']} deltas applied"
                )
            if facts:
                self._notifier.notify(**facts)
            await asyncio.sleep(self._notifier.pause)
