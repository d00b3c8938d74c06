"""A server that counts connections before anything else is done for them."""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvicorn

from evergraph.server.connections import NOTHING_CAME, protocol_class
from evergraph.server.gate import RESERVE, Gate

if TYPE_CHECKING:
    from evergraph.server.connections import Bounded
    from evergraph.server.gate import Line, Network
    from evergraph.server.limits import Limits
    from evergraph.server.tls import Tls

BACKLOG = 2_048  # connections that wait to be accepted
BURST = 16  # accepted before those that have come get a turn
FILES = 256  # descriptors that the learner and its folder need
WAY = 8  # connections that give way then
PAUSE = 0.5  # seconds until the next try where the system has no descriptors left
QUIET = 60.0  # seconds between two warnings of that
SPENT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn's server, with a gate in front.

    It accepts connections itself: so it can count one before the first byte and before a TLS
    handshake, and each begins with the certificate of that moment.

    Args:
        config: what is served.
        limits: how many connections there may be, and how long they may keep quiet.
        tls: certificates for what comes from other machines; None: none.
        proxies: networks that speak for many clients.
        reload: called in a thread when ``hang_up`` is.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        limits: Limits,
        tls: Tls | None = None,
        proxies: Sequence[Network] = (),
        reload: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self.gate = Gate(
            connections=_affordable(limits.connections),
            per_address=limits.per_address,
            seconds=limits.header_seconds,
            proxies=proxies,
        )
        self._tls = tls
        self._reload = reload
        self._protocol = protocol_class()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun: set[asyncio.Future[Any]] = set()
        self._listeners: list[socket.socket] = []
        self._warned = -QUIET

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets=[])
        self._loop = asyncio.get_running_loop()
        self._keep(self._loop.create_task(self._looking()))
        for listener in sockets or ():
            listener.setblocking(False)
            listener.listen(BACKLOG)
            self._listeners.append(listener)
            self._accept_from(listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, answer what was asked, and end."""
        assert self._loop is not None
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
        self._listeners.clear()
        self.gate.close()
        await super().shutdown(sockets=sockets)
        for begun in self._begun:
            begun.cancel()

    def hang_up(self) -> None:
        """Read again what can be read again while the server runs; safe in a signal's handler."""
        if self._loop is not None and self._reload is not None:
            self._loop.call_soon_threadsafe(self._again, self._reload)

    def _again(self, reload: Callable[[], None]) -> None:
        assert self._loop is not None
        self._keep(self._loop.run_in_executor(None, reload))

    def _keep(self, begun: asyncio.Future[Any]) -> None:
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)

    async def _looking(self) -> None:
        """End connections that are silent or stalled for too long."""
        seconds = self.gate.seconds
        while True:
            await asyncio.sleep(min(1.0, seconds / 4))
            self.gate.late()
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                connection.look(now, seconds)  # type: ignore[union-attr]

    def _accept_from(self, listener: socket.socket) -> None:
        if self._loop is not None and listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept those that wait."""
        for _ in range(BURST):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SPENT:
                    raise
                self._wait(listener, error)
                return
            self._arrive(sock, peer)

    def _wait(self, listener: socket.socket, error: OSError) -> None:
        """Look again later: a socket that cannot be accepted would wake the loop at once."""
        assert self._loop is not None
        if not select.select([listener], [], [], 0)[0]:
            return  # nobody waits: the system looks for a file first
        self._loop.remove_reader(listener.fileno())
        self._loop.call_later(PAUSE, self._accept_from, listener)
        for _ in range(WAY):
            self.gate.make_way()
        if time.monotonic() - self._warned >= QUIET:
            self._warned = time.monotonic()
            log.warning("connections wait until the system has files to give (%s)", error)

    def _arrive(self, sock: socket.socket, peer: Any) -> None:
        assert self._loop is not None
        line: Line | None = None
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = self.gate.enter(peer[0], lambda: None)
            if line is None:
                sock.close()
                return
            # Nothing more is made for it before its first byte: to keep quiet must not be cheaper
            # than to be kept waiting for.
            line.drop = lambda: self._forget(sock)
            self._loop.add_reader(sock.fileno(), self._first_byte, sock, line)
            return
        self._keep(self._loop.create_task(self._begin(sock, None)))

    def _forget(self, sock: socket.socket) -> None:
        """End a connection that has sent nothing."""
        assert self._loop is not None
        self._loop.remove_reader(sock.fileno())
        if self._tls is None:
            with suppress(OSError):
                sock.send(NOTHING_CAME)
        sock.close()

    def _first_byte(self, sock: socket.socket, line: Line) -> None:
        assert self._loop is not None
        self._loop.remove_reader(sock.fileno())
        self.gate.heard(line)  # those that have sent nothing give way first
        begun = self._loop.create_task(self._begin(sock, line))
        # As long as the handshake lasts; not before it has begun, since it closes the socket then.
        line.drop = lambda: self._later(begun.cancel if self._tls is not None else _nothing)
        self._keep(begun)

    def _later(self, call: Callable[[], Any]) -> None:
        assert self._loop is not None
        self._loop.call_soon(call)

    async def _begin(self, sock: socket.socket, line: Line | None) -> None:
        """Have a connection answered by a protocol of its own."""
        assert self._loop is not None
        protocol = self._answering(line)
        secured: dict[str, Any] = {}
        if line is not None and self._tls is not None:
            secured = {"ssl": self._tls.context, "ssl_handshake_timeout": self.gate.seconds}
            if sys.version_info >= (3, 11):
                secured["ssl_shutdown_timeout"] = self.gate.seconds
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, sock, **secured)
        except BaseException as error:
            if line is not None:
                self.gate.leave(line)
            if not isinstance(error, OSError):  # of a handshake, or a client that is gone
                raise

    def _answering(self, line: Line | None) -> Bounded:
        made = self._protocol(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        made.gate, made.line = self.gate, line
        return made


def _nothing() -> None:
    """Do nothing: a connection that has lost its place ends as soon as it has begun."""


def _affordable(connections: int) -> int:
    """Return how many connections the system has files for; ask it for enough."""
    try:
        import resource
    except ImportError:  # not a Unix
        return connections
    needed = connections + RESERVE + FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    if hard == resource.RLIM_INFINITY or hard > soft:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft >= needed:
        return connections
    fewer = max(soft // 2, soft - RESERVE - FILES)
    log.warning(
        "the system lets this process open %d files: at most %d connections are taken, not %d "
        "(ulimit -n %d)",
        soft,
        fewer,
        connections,
        needed,
    )
    return fewer
