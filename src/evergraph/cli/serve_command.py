"""``evergraph serve``: a learner behind HTTP."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from evergraph.cli.ca_option import CA
from evergraph.cli.config_file import shown, use_file
from evergraph.cli.learner_target import token_for
from evergraph.cli.options import parse_settings
from evergraph.cli.output import say
from evergraph.cli.plugin_option import PLUGINS
from evergraph.cli.serving import Serving
from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError
from evergraph.core.extras import require
from evergraph.core.sizes import parse_size


def serve_command(
    context: typer.Context,
    path: Path = typer.Argument(..., help="The learner's folder; created if there is none."),
    host: str = typer.Option("127.0.0.1", help="Where to listen."),
    port: int = typer.Option(8000, help="0 chooses a free port.", min=0, max=65535),
    token_file: Path | None = typer.Option(
        None,
        help="Lines 'read TOKEN', 'follow TOKEN' or 'write TOKEN'; needed to listen beyond this "
        "machine (default: none).",
    ),
    topology: str | None = typer.Option(
        None, help="f_topo if the folder is new (default: the head's own)."
    ),
    hops: int | None = typer.Option(None, help="L, if the folder is new (default: 2)."),
    head: str | None = typer.Option(None, help="Head if the folder is new (default: auto)."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="If the folder is new, such as head.width=2048."
    ),
    plugins: list[str] = PLUGINS,
    body_limit: str = typer.Option("32MB", help="The largest request body."),
    rate: float = typer.Option(10_000.0, help="Requests per second, per token or address."),
    timeout: float = typer.Option(30.0, help="Seconds a request may take."),
    delta_classes: int = typer.Option(1_000, help="New classes that one change may bring.", min=1),
    delta_memory: str | None = typer.Option(
        None,
        help="Memory that learning one change may take, such as 2GB (default: half of what is "
        "free).",
    ),
    key_age: float = typer.Option(
        7.0, help="Days for which the key of a delta is known, at least.", min=0
    ),
    replay_seconds: float = typer.Option(
        10.0,
        help="Seconds of learning after which a snapshot is taken: a restart repeats them.",
        min=0,
    ),
    threads: int = typer.Option(
        1, help="Threads for learning; other cores answer requests.", min=1
    ),
    memory_limit: str | None = typer.Option(
        None, help="The most memory to hold, such as 2GB (default: all that it takes)."
    ),
    scratch: Path | None = typer.Option(
        None, help="Folder for what does not stay in memory (default: the system's temporary one)."
    ),
    replicas: int = typer.Option(
        0, help="Processes that answer beside the one that writes.", min=0, max=64
    ),
    follow: str | None = typer.Option(
        None,
        metavar="URL",
        help="Keep up with the service there, and answer from a folder of one's own; the token "
        "file lists one that may follow, if it asks for any (default: no service).",
    ),
    log_format: str = typer.Option("text", help="Lines of the log: text or json."),
    access_log: bool = typer.Option(
        False, "--access-log", help="Write a line to the log for every request."
    ),
    config: Path | None = typer.Option(
        None,
        metavar="FILE",
        is_eager=True,
        callback=use_file,
        help="TOML with options by their names; what is typed wins (default: none).",
    ),
    check_config: bool = typer.Option(
        False, "--check-config", help="Say which options would be used, and stop."
    ),
    ca: Path | None = CA,
    tls_cert: Path | None = typer.Option(
        None, help="PEM file of a certificate: the service is https (default: http)."
    ),
    tls_key: Path | None = typer.Option(
        None, help="PEM file of the certificate's key, for its owner alone (default: none)."
    ),
    tls_key_password_file: Path | None = typer.Option(
        None, help="File with the key's password (default: it has none)."
    ),
    proxies: list[str] = typer.Option(
        [],
        "--proxy",
        metavar="ADDRESS",
        help="Address or network of a proxy, whose X-Forwarded-For is believed (default: none).",
    ),
    connections: int = typer.Option(1_000, help="Connections at once.", min=1),
    connections_per_address: int = typer.Option(
        200, help="Connections at once from one address.", min=1
    ),
    header_timeout: float = typer.Option(
        10.0, help="Seconds for the head of a request, or for a client to read of its answer."
    ),
    idle_timeout: float = typer.Option(
        15.0, help="Seconds that a connection is kept for another request."
    ),
    held_limit: str = typer.Option("256MB", help="Bodies of all requests at once."),
) -> None:
    """Serve a learner over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged change is on disk. A page at / shows what the learner knows. Without a
    token file only this machine may read and write.
    """
    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", why="serving")
    from evergraph.server.limits import Limits
    from evergraph.server.listening import (
        bind,
        check_address,
        check_replicas,
        networks,
        outlive_hang_ups,
    )
    from evergraph.server.log_format import FORMATS, written_log
    from evergraph.server.reloading import Reloading
    from evergraph.server.replicas import Orders, Replicas
    from evergraph.server.tls import tls_of
    from evergraph.server.tokens import CurrentTokens, read_tokens

    outlive_hang_ups()
    check_choice("log format", log_format, FORMATS)
    # Read by numpy when it is loaded: predictions of a node are too small to be shared by threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
    check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else CurrentTokens(read_tokens(token_file))
    tls = tls_of(tls_cert, tls_key, tls_key_password_file)
    networks(proxies)
    given = _given(topology, hops, head, parse_settings(settings))
    _check_follow(follow, given)
    if follow is not None:
        token_for(token_file, "follow")  # refused before anything is begun
    limits = Limits(
        body=parse_size(body_limit),
        rate=rate,
        burst=max(1, round(2 * rate)),
        seconds=timeout,
        connections=connections,
        per_address=connections_per_address,
        header_seconds=header_timeout,
        idle_seconds=idle_timeout,
        held=parse_size(held_limit),
    )
    if check_config:
        say(shown(context))
        return
    if replicas:
        check_replicas(host, port)
    bound = bind(host, port, shared=replicas > 0)
    reload = Reloading(token_file=token_file, tokens=tokens, tls=tls)
    serving = Serving(
        path,
        given,
        reload,
        opening={
            "key_age": key_age,
            "replay_seconds": replay_seconds,
            "memory_limit": memory_limit,
            "scratch": scratch,
            "threads": threads,
            "bounds": (delta_classes, None if delta_memory is None else parse_size(delta_memory)),
        },
        answering={"tokens": tokens, "limits": limits, "access_log": access_log},
        listening={"limits": limits, "tls": tls, "proxies": proxies},
        plugins=plugins,
        threads=threads,
        follow=follow,
        ca=ca,
    )
    others = None
    if replicas:
        orders = Orders(
            folder=str(path),
            host=host,
            port=bound.getsockname()[1],
            limits=asdict(limits),
            tokens=None if tokens is None else list(tokens.now.listed),
            plugins=list(plugins),
            threads=threads,
            opening={
                "memory_limit": memory_limit,
                "scratch": None if scratch is None else str(scratch),
                "threads": threads,
            },
            log_format=log_format,
            access_log=access_log,
            tls=None if tls is None else tls.files,
            proxies=list(proxies),
        )
        others = Replicas(replicas, orders)
        reload.then.append(others.renew)
    with written_log(log_format):
        serving.run(bound, others)


def _check_follow(url: str | None, given: dict[str, Any]) -> None:
    """Raise unless a URL is given, and nothing that the service there decides."""
    from evergraph.server.client import is_url

    if url is None:
        return
    if not is_url(url):
        raise ConfigurationError(f"follow must be the URL of a service, not {url!r}")
    if given:
        raise ConfigurationError(
            f"with --follow the learner is made as that of {url}: leave out {next(iter(given))}"
        )


def _given(
    topology: str | None, hops: int | None, head: str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the learner that were typed."""
    parts: dict[str, dict[str, Any]] = {
        "topology": {"name": topology, "hops": hops},
        "head": {"name": head},
    }
    given: dict[str, Any] = dict(settings)
    for name, values in parts.items():
        kept = {key: value for key, value in values.items() if value is not None}
        if kept:
            given[name] = given.get(name, {}) | kept
    return given
