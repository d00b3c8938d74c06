"""``evergraph serve``: a learner behind HTTP."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.learner_target import token_for
from evergraph.cli.options import parse_settings
from evergraph.cli.plugin_option import PLUGINS
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.sizes import parse_size

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from evergraph.server.replicas import Replicas


def serve_command(
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
) -> None:
    """Serve a learner over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged change is on disk. A page at / shows what the learner knows. Without a
    token file only this machine may read and write.
    """
    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", why="serving")
    from evergraph.server.listening import bind, check_address, check_replicas
    from evergraph.server.tokens import read_tokens

    # Read by numpy when it is loaded: predictions of a node are too small to be shared by threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
    check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else read_tokens(token_file)
    if replicas:
        check_replicas(host, port)
    bound = bind(host, port, shared=replicas > 0)
    given = _given(topology, hops, head, parse_settings(settings))
    _check_follow(follow, given)
    with spinner("loading torch and the learner"):
        from evergraph.online.bounds import Bounds
        from evergraph.online.folder.learner_folder import LearnerFolder
        from evergraph.server.app import create_app
        from evergraph.server.leader import Leader, follower_folder
        from evergraph.server.limits import Limits
        from evergraph.server.replicas import Orders, Replicas

        load_plugins(plugins)
        limits = Limits(
            body=parse_size(body_limit), rate=rate, burst=max(1, round(2 * rate)), seconds=timeout
        )
        opening: dict[str, Any] = {
            "key_age": key_age, "memory_limit": memory_limit, "scratch": scratch,
            "threads": threads,
            "bounds": Bounds(
                delta_classes, None if delta_memory is None else parse_size(delta_memory)
            ),
        }  # fmt: skip
        leader = None if follow is None else Leader(follow, token_for(token_file, "follow"))
        folder = (
            LearnerFolder.of(path, given, **opening)
            if leader is None
            else follower_folder(path, leader, **opening)
        )
        make = partial(create_app, folder, tokens=tokens, limits=limits, leader=leader)
    if not replicas:
        _run(make(), bound, threads)
        return
    orders = Orders(
        folder=str(path),
        host=host,
        port=bound.getsockname()[1],
        limits=asdict(limits),
        tokens=None if tokens is None else list(tokens.listed),
        plugins=list(plugins),
        threads=threads,
        opening={
            "memory_limit": memory_limit,
            "scratch": None if scratch is None else str(scratch),
            "threads": threads,
        },
    )
    with Replicas(replicas, orders) as others:
        _run(make(place=others.place), bound, threads, others)


def _run(app: FastAPI, bound: socket.socket, threads: int, others: Replicas | None = None) -> None:
    from evergraph.server.listening import listen

    listen(app, bound, threads=threads, others=others)
    if app.state.following is not None and app.state.following.failed:
        raise typer.Exit(1)


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
