"""Listening for requests until told to stop."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING

from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import FastAPI

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


def listen(app: FastAPI, bound: socket.socket, *, threads: int = 1) -> None:
    """Serve until SIGTERM or SIGINT.

    Then nothing new is accepted, requests that were begun are answered, and the application closes
    the learner's folder. A second signal ends what is still waiting: it is refused, not half done.

    threads: of torch, for one computation: the others are left to answer requests.
    """
    import torch
    import uvicorn

    torch.set_num_threads(threads)
    sys.setswitchinterval(SWITCH)
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
        log.info("listening on %s", _url(bound))
        uvicorn.Server(config).run(sockets=[bound])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        bound.close()
    log.info("stopped: everything acknowledged is on the disk")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
