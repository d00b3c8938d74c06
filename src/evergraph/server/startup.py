"""A service from its first moment on: until its learner is there, it says how far it is."""

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
    from starlette.types import Receive, Scope, Send

    from evergraph.online.folder.status import Replaying
    from evergraph.server.app import Application

PATIENCE = 1.0  # seconds that a recovery has to end in once the service is to stop, and for a
# service manager that has much to read
SELDOM = 5.0  # seconds between two words to a service manager where no watchdog asks for more
AGAIN = {"Retry-After": "2"}  # seconds after which a client may ask again
EXTENSION = 60  # seconds for which a service manager is to wait for the next word
RECOVERING = "the service is recovering what it knows from the disk: ask again later"
log = logging.getLogger(__name__)
Make = Callable[[Callable[["Replaying"], None]], "Application"]


@dataclass(frozen=True)
class Notifier:
    """Sends what is told to the socket of a service manager; to nobody where there is none.

    Attributes:
        address: of the socket; ``@`` begins one that has no file.
        watchdog: seconds within which a process must say that it lives; None: it need not.

    >>> Notifier.of({"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "3000000"})
    Notifier(address='/run/notify', watchdog=3.0)
    """

    address: str | None = None
    watchdog: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Notifier:
        """Return the one that a service manager has asked for."""
        for_us = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
        interval = environment.get("WATCHDOG_USEC", "") if for_us else ""
        watchdog = int(interval) / 1e6 if interval.isdigit() and int(interval) else None
        return cls(environment.get("NOTIFY_SOCKET") or None, watchdog)

    @property
    def pause(self) -> float:
        """Seconds between two words: a third of what the watchdog allows."""
        return SELDOM if self.watchdog is None else min(SELDOM, self.watchdog / 3)

    def tell(self, **facts: object) -> None:
        """Send some facts; that nobody listens is no reason to stop."""
        if self.address is None:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        told = "\n".join(f"{name}={value}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(PATIENCE)
                line.sendto(told.encode(), address)
        except OSError as error:
            log.debug("the service manager does not listen: %s", error)


class Abandoned(BaseException):
    """A recovery that nobody waits for any more; no error, so that nobody takes it for one."""


class Starting:
    """Opens a learner's folder in a thread; answers health and readiness until it is open.

    From then on the application proper answers. Until then every other request is refused with
    503. Where the folder cannot be opened the server stops, and ``failed`` says why.

    Args:
        make: opens the folder and returns the application; it is given what to call with how far
            the recovery is.
        notifier: tells a service manager; None: the one that the environment names.

    Attributes:
        app: the application proper, None until the folder is open.
        failed: why there is none.
        abandoned: whether the thread was still at work when the service stopped: the process must
            end without waiting for it. The folder is then as after any other crash.
        state: what ``listen`` needs of an application.
    """

    def __init__(self, make: Make, *, notifier: Notifier | None = None) -> None:
        self._make = make
        self._notifier = Notifier.of() if notifier is None else notifier
        self.app: Application | None = None
        self.failed: BaseException | None = None
        self.abandoned = False
        self.state: Any = SimpleNamespace(stopping=Event(), failed=Event())
        self._made: Application | None = None
        self._progress: Replaying | None = None
        self._said = False
        self._server: uvicorn.Server | None = None
        self._url = ""

    def attend(self, server: uvicorn.Server, url: str) -> None:
        """Note who serves this application, and where."""
        self._server, self._url = server, url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self.app is not None and scope["type"] != "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer while there is no learner."""
        found = answer({"error": RECOVERING}, 503, AGAIN)
        if scope.get("path") == "/healthz":
            found = answer({"status": "ok"})
        elif scope.get("path") == "/readyz":
            found = answer({"status": "recovering", **self.progress()}, 503, AGAIN)
        found.raw_headers += [(HEADER, request_id_of(scope).encode()), *HEADERS]
        await found(scope, receive, send)

    def progress(self) -> dict[str, Any]:
        """Return how many deltas have been applied again, of how many, and how long it will take.

        >>> from evergraph.online.folder.status import Replaying
        >>> starting = Starting(lambda progress: None, notifier=Notifier())
        >>> starting._note(Replaying(10, 40, 6.0))
        >>> starting.progress()
        {'done': 10, 'of': 40, 'seconds_left': 6.0}
        """
        now = self._progress
        if now is None:
            return {"done": 0, "of": 0, "seconds_left": None}
        left = round(now.seconds, 1) if now.seconds or now.done == now.of else None
        return {"done": now.done, "of": now.of, "seconds_left": left}

    def _note(self, progress: Replaying) -> None:
        """Note how far the recovery is; called by its thread, which is stopped here if need be."""
        self._progress = progress
        if self.state.stopping.is_set():
            raise Abandoned
        if progress.of and not self._said:
            self._said = True
            deltas = "1 delta" if progress.of == 1 else f"{progress.of} deltas"
            log.info("recovering at %s: %s since the snapshot", self._url, deltas)

    def _open(self, opened: Callable[[], None]) -> None:
        """Open the folder, in a thread."""
        try:
            self._made = self._make(self._note)
            # Python never looks again through what is loaded now: it took 180 ms, in one go.
            gc.collect()
            gc.freeze()
        except Abandoned:
            pass
        except BaseException as error:  # whoever started the service is told
            self.failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            opened()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        loop, opened = asyncio.get_running_loop(), asyncio.Event()
        told = (lambda: loop.call_soon_threadsafe(opened.set),)
        Thread(target=self._open, args=told, name="evergraph-opening", daemon=True).start()
        stop = asyncio.Event()
        life = loop.create_task(self._live(opened, stop))
        beat = loop.create_task(self._beat())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._notifier.tell(STOPPING=1, STATUS="stopping")
        self.state.stopping.set()
        if not opened.is_set():
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(opened.wait(), PATIENCE)
        self.abandoned = not opened.is_set()
        stop.set()
        if self.abandoned:
            life.cancel()
        else:
            await life
        beat.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _live(self, opened: asyncio.Event, stop: asyncio.Event) -> None:
        """Wait for the application proper, and have it answer until the end."""
        await opened.wait()
        app = self._made
        if app is None:
            if self._server is not None:
                self._server.should_exit = True
            return
        async with app.router.lifespan_context(app):
            self._take_over(app)
            await stop.wait()

    def _take_over(self, app: Application) -> None:
        stopping = self.state.stopping.is_set()
        self.state, self.app = app.state, app
        if stopping:
            self.state.stopping.set()
            return
        log.info("listening on %s", self._url)
        self._notifier.tell(READY=1, STATUS="ready")

    async def _beat(self) -> None:
        """Tell the service manager that the loop turns, and to be patient with a recovery."""
        while True:
            facts: dict[str, object] = {} if self._notifier.watchdog is None else {"WATCHDOG": 1}
            if self.app is None and not self.state.stopping.is_set():
                now = self.progress()
                facts["EXTEND_TIMEOUT_USEC"] = EXTENSION * 1_000_000
                facts["STATUS"] = f"recovering: {now['done']} of {now['of']} deltas applied"
            if facts:
                self._notifier.tell(**facts)
            await asyncio.sleep(self._notifier.pause)
