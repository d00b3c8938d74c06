"""Listening for requests until told to stop."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evergraph.core.errors import ConfigurationError
from evergraph.server.starting import Starting, keep_what_is_loaded

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from evergraph.server.accepting import Server
    from evergraph.server.gate import Network
    from evergraph.server.limits import Limits
    from evergraph.server.tls import Tls

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


def networks(proxies: Sequence[str]) -> list[Network]:
    """Return addresses and networks as such; one address is a network of one.

    >>> networks(["192.0.2.7", "10.0.0.0/8"])
    [IPv4Network('192.0.2.7/32'), IPv4Network('10.0.0.0/8')]
    >>> networks(["proxy.example"])
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: proxy must be an address such as 192.0.2.7 or a \
network such as 10.0.0.0/8, not 'proxy.example'
    """
    found: list[Network] = []
    for text in proxies:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            raise ConfigurationError(
                "proxy must be an address such as 192.0.2.7 or a network such as 10.0.0.0/8, not "
                f"{text!r}"
            ) from None
    return found


def outlive_hang_ups() -> None:
    """Have SIGHUP do nothing, until ``listen`` gives it a meaning: it ends a process otherwise."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, _nothing)


def listen(
    app: FastAPI | Starting,
    bound: socket.socket,
    *,
    threads: int = 1,
    limits: Limits | None = None,
    tls: Tls | None = None,
    proxies: Sequence[str] = (),
    reload: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Then nothing new is accepted, requests that were begun are answered, and the application closes
    the learner's folder. A second signal ends what is still waiting: it is refused, not half done.

    threads: of torch, for one computation: the others are left to answer requests, and one that
    is starting sets them itself; limits: how many connections there may
    be, and how quiet; tls: the certificate to serve with; proxies: addresses and networks whose
    word for who asks is believed; reload: called in a thread on SIGHUP.
    """

    if not isinstance(app, Starting):
        import torch

        torch.set_num_threads(threads)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    if not isinstance(app, Starting):
        keep_what_is_loaded()
    # uvicorn sends itself the signal again once it has stopped: that must not kill us at the end.
    before = signal.signal(signal.SIGTERM, _nothing)
    try:
        server = server_for(app, limits=limits, tls=tls, proxies=proxies, reload=reload)
        bound.listen()  # from here on a client waits instead of being turned away
        if isinstance(app, Starting):
            app.attend(server, _url(bound, tls))  # it says itself when it is there
        else:
            log.info("listening on %s", _url(bound, tls))
        _tell(server, app)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda *_: server.hang_up())
        server.run(sockets=[bound])
    except KeyboardInterrupt:
        pass
    finally:
        outlive_hang_ups()
        signal.signal(signal.SIGTERM, before)
        sys.setswitchinterval(interval)
        bound.close()
    if getattr(app, "failed", None) is None:
        log.info("stopped: everything acknowledged is on the disk")


def server_for(
    app: ASGIApp,
    *,
    limits: Limits | None = None,
    tls: Tls | None = None,
    proxies: Sequence[str] = (),
    reload: Callable[[], None] | None = None,
) -> Server:
    """Return what answers for an application; see ``listen``."""
    import uvicorn

    from evergraph.server.accepting import Server
    from evergraph.server.limits import Limits

    limits = Limits() if limits is None else limits
    config = uvicorn.Config(
        app,
        log_level="error",  # it warns of every request that is no HTTP
        access_log=False,  # metrics.Observed writes one
        log_config=None,  # its lines are those of the log like any other
        server_header=False,
        ws="none",  # a connection that became a web socket would be out of sight
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
    )
    return Server(config, limits=limits, tls=tls, proxies=networks(proxies), reload=reload)


def _tell(server: uvicorn.Server, app: FastAPI | Starting) -> None:
    """Have those that wait for deltas told to stop as soon as a server is."""
    stop = server.handle_exit

    def told(sig: int, frame: FrameType | None) -> None:
        app.state.stopping.set()
        stop(sig, frame)

    server.handle_exit = told  # type: ignore[method-assign]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _nothing(*_: object) -> None:
    """Answer a signal with nothing."""


def _url(bound: socket.socket, tls: Tls | None) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"
