"""Listening for requests until told to stop: sockets, limits of connections, signals."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from evergraph.core.errors import ConfigurationError, EvergraphError
from evergraph.server.auth import Tokens, read_tokens
from evergraph.server.limits import Limits

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from starlette.types import ASGIApp

    from evergraph.server.auth import Tls
    from evergraph.server.startup import Starting

GRACE = 30  # seconds that requests have to finish in once a stop is asked for
SWITCH = 0.0005  # seconds; a prediction waits this long for a thread that learns, not ten times so
HEAD = 1 << 16  # bytes of a request's head
_SAID = b'{"error":"the head of a request must have at most 65536 bytes"}'
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_SAID), _SAID)
)
FILES = 256  # descriptors that the learner and its folder need
log = logging.getLogger(__name__)


def check_address(host: str, *, has_tokens: bool) -> None:
    """Raise where others could reach a service that asks nobody for a token.

    >>> check_address("127.0.0.1", has_tokens=False)
    """
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not has_tokens and not here:
        raise ConfigurationError(
            "host must be 127.0.0.1, ::1 or localhost unless --token-file says who may read and "
            f"write, not {host!r}"
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address, or raise where it is taken; port 0 takes a free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends small answers at once only where the protocol is named; else they may wait
        # 40 ms for the other side's acknowledgement.
        bound = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"host and port must be free to listen on, not {host}:{port} ({error})"
        ) from error
    return bound


def check_proxies(proxies: Sequence[str]) -> None:
    """Raise unless all are addresses or networks.

    >>> check_proxies(["192.0.2.7", "10.0.0.0/8"])
    """
    for text in proxies:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ConfigurationError(
                "proxy must be an address such as 192.0.2.7 or a network such as 10.0.0.0/8, not "
                f"{text!r}"
            ) from None


@dataclass
class Reload:
    """What is read again; all of it, or where a file is wrong nothing.

    Attributes:
        token_file: who may read and write.
        tokens: those in use.
        tls: the certificate in use.
    """

    token_file: Path | None = None
    tokens: Tokens | None = None
    tls: Tls | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self) -> None:
        """Read them again; what is wrong is said in the log, and changes nothing."""
        with self._lock:
            try:
                said = self._read()
            except EvergraphError as error:
                log.error("nothing was reloaded: %s", error)
                return
            log.info("reloaded %s" if said else "there is nothing to reload%s", " and ".join(said))

    def _read(self) -> list[str]:
        tokens = None if self.token_file is None else read_tokens(self.token_file)
        if self.tls is not None:
            self.tls.renew()
        said = []
        if tokens is not None and self.tokens is not None:  # a wrong certificate changes none
            self.tokens.listed = tokens.listed
            said.append(f"{len(tokens.listed)} tokens")
        return said if self.tls is None else [*said, "the certificate"]


def outlive_hang_ups() -> None:
    """Have SIGHUP do nothing, until ``listen`` gives it a meaning: it ends a process otherwise."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, _nothing)


def listen(
    app: Starting,
    bound: socket.socket,
    *,
    limits: Limits | None = None,
    tls: Tls | None = None,
    proxies: Sequence[str] = (),
    reload: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Then nothing new is accepted, requests that were begun are answered, and the application closes
    the learner's folder. A second signal ends what is still waiting: it is refused, not half done.

    limits: how many connections there may be, and how quiet; tls: the certificate to serve with;
    proxies: addresses and networks whose word for who asks is believed; reload: called in a thread
    on SIGHUP.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    # uvicorn sends itself the signal again once it has stopped: that must not kill us at the end.
    before = signal.signal(signal.SIGTERM, _nothing)
    try:
        server = server_for(app, limits=limits, tls=tls, proxies=proxies)
        stop = server.handle_exit

        def told(sig: int, frame: FrameType | None) -> None:
            app.state.stopping.set()  # whoever waits for a delta is told, too
            stop(sig, frame)

        server.handle_exit = told  # type: ignore[method-assign]
        bound.listen()  # from here on a client waits instead of being turned away
        app.attend(server, _url(bound, tls))  # it says itself when it is there
        if hasattr(signal, "SIGHUP") and reload is not None:
            signal.signal(signal.SIGHUP, lambda *_: Thread(target=reload, daemon=True).start())
        server.run(sockets=[bound])
    except KeyboardInterrupt:
        pass
    finally:
        outlive_hang_ups()
        signal.signal(signal.SIGTERM, before)
        sys.setswitchinterval(interval)
        bound.close()
    if app.failed is None:
        log.info("stopped: everything acknowledged is on the disk")


def server_for(
    app: ASGIApp,
    *,
    limits: Limits | None = None,
    tls: Tls | None = None,
    proxies: Sequence[str] = (),
) -> uvicorn.Server:
    """Return what answers for an application; see ``listen``."""
    import uvicorn

    limits = Limits() if limits is None else limits
    _allow_files(limits.connections + FILES)
    config = uvicorn.Config(
        app,
        http=_protocol(limits),
        log_level="error",  # it warns of every request that is no HTTP
        access_log=False,  # Observed writes one
        log_config=None,  # its lines are those of the log like any other
        server_header=False,
        ws="none",  # a connection that became a web socket would be out of sight
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
    )
    config.load()
    if tls is not None:
        config.ssl = tls.context  # not read by uvicorn: it can be renewed while it is in use
    return uvicorn.Server(config)


def _protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol of a connection, with an end to waiting for a request's head.

    uvicorn bounds the time between two requests, but not that for the first byte, nor for a head
    that comes slowly. Where there are too many connections, the one that has owed a head for
    longest gives way. All else, such as clients that do not read, is for a proxy in front.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    waiting: dict[asyncio.Protocol, asyncio.Transport] = {}  # those that owe a head, oldest first

    class PatientProtocol(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _head = 0  # bytes of it that have come

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                next(iter(waiting.values()), transport).abort()
            self._expect_head()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._expect_head()

        def on_headers_complete(self) -> None:
            self._stop_waiting()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self in waiting:
                self._head += len(data)
                if self._head > HEAD:
                    self.transport.write(TOO_LONG)
                    self.transport.close()

        def _expect_head(self) -> None:
            self._stop_waiting()
            waiting[self], self._head = self.transport, 0
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(limits.header_seconds, self.transport.abort)

        def _stop_waiting(self) -> None:
            waiting.pop(self, None)
            if self._late is not None:
                self._late.cancel()

    return PatientProtocol


def _allow_files(needed: int) -> None:
    """Ask the system for so many files, as far as it lets this process."""
    try:
        import resource
    except ImportError:  # not a Unix
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        few = f"the system lets this process open {most} files, and {needed - FILES} connections"
        log.warning("%s need %d: give fewer --connections, or raise it: ulimit -n", few, needed)


def _nothing(*_: object) -> None:
    """Answer a signal with nothing."""


def _url(bound: socket.socket, tls: Tls | None) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"
