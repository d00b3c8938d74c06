"""Running the server: sockets, connection limits, signals, reloading."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import resource
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
from evergraph.server.http import Limits

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from starlette.types import ASGIApp

    from evergraph.server.auth import Tls
    from evergraph.server.startup import Starting

GRACE_SECONDS = 30  # for open requests to finish on shutdown
# Seconds between switches of Python threads, a fiftieth of the default: for every step of a request
# the event loop waits this long for each thread that computes.
SWITCH_SECONDS = 0.0001
# When Python's collector looks for reference cycles: after so many new objects, then among those
# left of so many such looks, then among all. A body of 1 MB holds 300,000 lists and tuples; by
# default they were looked at over and over, for 0.4 s at a time, in which nobody was answered.
GC_THRESHOLDS = (10_000, 1_000, 10)
SEND_BUFFER = 1 << 17  # bytes of answers that the kernel holds for a connection
MAX_HEAD = 1 << 16  # bytes of a request's head
_SENTENCE = b'{"error":"the head of a request must have at most 65536 bytes"}'
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_SENTENCE), _SENTENCE)
)
OWN_FILES = 256  # file descriptors that the learner and its folder need
log = logging.getLogger(__name__)


def check_address(host: str, *, has_tokens: bool) -> None:
    """Raise if a service without tokens could be reached from other machines."""
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not has_tokens and not is_loopback:
        raise ConfigurationError(
            f"host must be 127.0.0.1, ::1 or localhost unless there is a --token-file, not {host!r}"
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address, or raise if it is in use; port 0 picks a free one."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sets TCP_NODELAY only if the socket names its protocol. Without it small answers
        # may wait 40 ms for the client's acknowledgement.
        bound = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # By default the kernel takes megabytes of an answer that nobody reads, and the service
        # would compute the next one meanwhile.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        bound.bind(address[4])
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"host and port must be free to listen on: {host}:{port} is not ({error}); stop the "
            "other process, or choose another --port"
        ) from error
    return bound


def check_proxies(proxies: Sequence[str]) -> None:
    """Raise unless all are addresses or networks."""
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
    """Reads tokens and certificate again on SIGHUP, in place; none if a file is invalid."""

    token_file: Path | None = None
    tokens: Tokens | None = None
    tls: Tls | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self) -> None:
        """Read the files again, and log the result."""
        reloaded = []
        with self._lock:
            try:
                tokens = None if self.token_file is None else read_tokens(self.token_file)
                if self.tls is not None:
                    self.tls.renew()
                    reloaded.append("the certificate")
            except EvergraphError as error:
                log.error("nothing was reloaded: %s", error)
                return
            # Tokens are replaced last, so that an invalid certificate leaves the old ones in use.
            if tokens is not None and self.tokens is not None:
                self.tokens.listed = tokens.listed
                reloaded.insert(0, f"{len(tokens.listed)} tokens")
            if reloaded:
                log.info("reloaded %s", " and ".join(reloaded))
            else:
                log.info("there is nothing to reload")


def ignore_sighup() -> None:
    """Ignore SIGHUP, which ends a process by default, until ``listen`` handles it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


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

    Then no connection is accepted any more, open requests are answered, and the application closes
    the learner's folder. A second signal rejects what still waits; no change is left half done.
    reload: called on a thread on SIGHUP.
    """
    switch_interval = sys.getswitchinterval()
    gc_thresholds = gc.get_threshold()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    # uvicorn raises the signal again once it has stopped, which would kill the process here.
    sigterm_handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server = server_for(app, limits=limits, tls=tls, proxies=proxies)
        uvicorn_handler = server.handle_exit

        def exit_handler(sig: int, frame: FrameType | None) -> None:
            app.state.stopping.set()  # ends requests that wait for a delta
            uvicorn_handler(sig, frame)

        server.handle_exit = exit_handler  # type: ignore[method-assign]
        bound.listen()  # from here on clients wait instead of being turned away
        host, port = bound.getsockname()[:2]
        if ":" in host:  # of IPv6
            host = f"[{host}]"
        scheme = "http" if tls is None else "https"
        app.set_server(server, f"{scheme}://{host}:{port}/")  # it logs when it is ready
        if reload is not None:
            signal.signal(signal.SIGHUP, lambda *_: Thread(target=reload, daemon=True).start())
        server.run(sockets=[bound])
    except KeyboardInterrupt:
        pass
    finally:
        ignore_sighup()
        signal.signal(signal.SIGTERM, sigterm_handler)
        sys.setswitchinterval(switch_interval)
        gc.set_threshold(*gc_thresholds)
        bound.close()
    if app.failed is None and not app.state.failed.is_set():
        log.info("stopped: everything acknowledged is on disk")


def server_for(
    app: ASGIApp,
    *,
    limits: Limits | None = None,
    tls: Tls | None = None,
    proxies: Sequence[str] = (),
) -> uvicorn.Server:
    """Return the uvicorn server of an application; see ``listen``."""
    import uvicorn

    limits = Limits() if limits is None else limits
    _allow_files(limits.connections + OWN_FILES)
    config = uvicorn.Config(
        app,
        http=_protocol(limits),
        log_level="error",  # it warns of every request that is not HTTP
        access_log=False,  # Observed writes one
        log_config=None,  # its lines go through the root logger
        server_header=False,
        ws="none",  # a web socket would escape the limits below
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
    )
    config.load()
    if tls is not None:
        config.ssl = tls.context  # ours, not uvicorn's: it can be renewed while in use
    return uvicorn.Server(config)


def _protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol class with limits for connections and heads of requests.

    uvicorn limits the time between two requests, but not the time to the first byte, nor that of a
    head which arrives slowly, nor its length. With too many connections, the one that has waited
    longest for a head is closed. What a proxy does better is left to it: connections per address,
    answers that nobody reads.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    waiting: dict[HttpToolsProtocol, asyncio.TimerHandle] = {}  # without a whole head, oldest first

    class PatientProtocol(HttpToolsProtocol):
        _head: int | None = None  # bytes of the head that is being read

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                next(iter(waiting), self).transport.abort()
            self._expect_head(limits.header_seconds)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head = 0

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._head is not None:
                self._head += len(data)
                if self._head > MAX_HEAD:
                    self.transport.write(TOO_LONG)
                    self.transport.close()

        def on_headers_complete(self) -> None:
            self._head = None
            self._stop_waiting()
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            if not (self.pipeline or self.transport.is_closing()):
                self._expect_head(limits.idle_seconds + limits.header_seconds)
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            self.pipeline.clear()  # nobody waits for what was sent ahead
            super().connection_lost(exc)

        def _expect_head(self, seconds: float) -> None:
            waiting[self] = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self in waiting:
                waiting.pop(self).cancel()

    return PatientProtocol


def _allow_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        log.warning(
            "the system allows this process %d open files, and %d connections need %d: lower "
            "--connections, or raise ulimit -n",
            allowed,
            needed - OWN_FILES,
            needed,
        )
