"""Listening for requests until told to stop."""

from __future__ import annotations

import gc
import ipaddress
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING

from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from fastapi import FastAPI

    from evergraph.server.replicas import Replicas

GRACE = 30  # seconds that requests have to finish in once a stop is asked for
SWITCH = 0.0005  # seconds; a prediction waits this long for a thread that learns, not ten times so
log = logging.getLogger(__name__)


def check_address(host: str, *, has_tokens: bool) -> None:
    """Raise where others could reach a service that asks nobody for a token.

    >>> check_address("127.0.0.1", has_tokens=False)
    >>> check_address("0.0.0.0", has_tokens=False)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: host must be 127.0.0.1, ::1 or localhost unless \
--token-file says who may read and write, not '0.0.0.0'
    """
    if not has_tokens and not _is_loopback(host):
        raise ConfigurationError(
            "host must be 127.0.0.1, ::1 or localhost unless --token-file says who may read and "
            f"write, not {host!r}"
        )


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket at an address, or raise where it is taken; port 0 takes a free one.

    shared: other processes of this service may bind to it as well, and connections are spread over
    them.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends small answers at once only where the protocol is named; else they may wait
        # 40 ms for the other side's acknowledgement.
        bound = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(found[4])
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"host and port must be free to listen on, not {host}:{port} ({error})"
        ) from error
    return bound


def check_replicas(host: str, port: int) -> None:
    """Raise where replicas cannot share a port, or where somebody else listens there.

    Sockets that may be shared are shared with anybody of this user, so another service would take
    half of the connections and nobody would notice.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigurationError(
            f"replicas must be 0 on this system ({sys.platform}): only Linux spreads connections "
            "over processes that listen at one port"
        )
    bind(host, port).close()


def listen(
    app: FastAPI,
    bound: socket.socket,
    *,
    threads: int = 1,
    others: Replicas | None = None,
    name: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Then nothing new is accepted, requests that were begun are answered, and the application closes
    the learner's folder. A second signal ends what is still waiting: it is refused, not half done.

    threads: of torch, for one computation: the others are left to answer requests; others:
    processes that pass requests on to this one, and stop with it; name: of a process that does
    not write, for the log.
    """
    import torch
    import uvicorn

    torch.set_num_threads(threads)
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through it took 180 ms now and then, in one go
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=1_000,
    )
    # uvicorn sends itself the signal again once it has stopped: that must not kill us at the end.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        bound.listen()  # from here on a client waits instead of being turned away
        log.info("%s %s", f"{name} answers at" if name else "listening on", _url(bound))
        server = uvicorn.Server(config)
        _tell(server, app, others)
        server.run(sockets=[bound] if others is None else [bound, others.socket])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        bound.close()
    if name is None:
        log.info("stopped: everything acknowledged is on the disk")


def _tell(server: uvicorn.Server, app: FastAPI, others: Replicas | None) -> None:
    """Have others told to stop as soon as a server is, and those that wait for deltas as well."""
    stop = server.handle_exit

    def told(sig: int, frame: FrameType | None) -> None:
        app.state.stopping.set()
        if others is not None:
            others.stop()
        stop(sig, frame)

    server.handle_exit = told  # type: ignore[method-assign]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
