"""``evergraph serve``: a learner behind HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from evergraph.cli.config_file import shown, use_file
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
    read_only: bool = typer.Option(
        False,
        "--read-only",
        help="Answer beside the process that writes to the folder, and follow what it writes.",
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
    header_timeout: float = typer.Option(10.0, help="Seconds for the head of a request."),
    idle_timeout: float = typer.Option(
        15.0, help="Seconds that a connection is kept for another request."
    ),
    held_limit: str = typer.Option("256MB", help="Bodies of all requests at once."),
) -> None:
    """Serve a learner over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged change is on disk. A page at / shows what the learner knows. Without a
    token file only this machine may read and write.
    """
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        require(package, extra="serve", why="serving")
    from evergraph.server.auth import CurrentTokens, read_tokens
    from evergraph.server.limits import Limits
    from evergraph.server.log import FORMATS, written_log
    from evergraph.server.running import (
        Reload,
        bind,
        check_address,
        check_proxies,
        outlive_hang_ups,
    )
    from evergraph.server.secret_files import tls_of

    outlive_hang_ups()
    check_choice("log format", log_format, FORMATS)
    # Read by numpy when it is loaded: predictions of a node are too small to be shared by threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
    check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else CurrentTokens(read_tokens(token_file))
    tls = tls_of(tls_cert, tls_key, tls_key_password_file)
    check_proxies(proxies)
    given = _given(topology, hops, head, parse_settings(settings))
    if read_only and given:
        raise ConfigurationError(
            f"with --read-only the learner is as it was made: leave out {next(iter(given))}"
        )
    limits = Limits(
        body=parse_size(body_limit),
        rate=rate,
        burst=max(1, round(2 * rate)),
        seconds=timeout,
        connections=connections,
        header_seconds=header_timeout,
        idle_seconds=idle_timeout,
        held=parse_size(held_limit),
    )
    if check_config:
        say(shown(context))
        return
    bound = bind(host, port)
    reload = Reload(token_file=token_file, tokens=tokens, tls=tls)
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
        read_only=read_only,
    )
    with written_log(log_format):
        serving.run(bound)


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
