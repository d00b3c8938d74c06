"""``evergraph serve``: a learner behind HTTP."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.config_file import shown, use_file
from evergraph.cli.learner_target import token_for
from evergraph.cli.options import parse_settings
from evergraph.cli.output import say
from evergraph.cli.plugin_option import PLUGINS
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.sizes import parse_size

if TYPE_CHECKING:
    import socket

    from evergraph.online.folder.replaying import Progress
    from evergraph.server.app import Application
    from evergraph.server.replicas import Replicas


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
) -> None:
    """Serve a learner over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged change is on disk. A page at / shows what the learner knows. Without a
    token file only this machine may read and write.
    """
    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", why="serving")
    from evergraph.server.limits import Limits
    from evergraph.server.listening import bind, check_address, check_replicas
    from evergraph.server.log_format import write_log
    from evergraph.server.replicas import Orders, Replicas
    from evergraph.server.tokens import read_tokens

    write_log(log_format)
    # Read by numpy when it is loaded: predictions of a node are too small to be shared by threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
    check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else read_tokens(token_file)
    given = _given(topology, hops, head, parse_settings(settings))
    _check_follow(follow, given)
    following = None if follow is None else (follow, token_for(token_file, "follow"))
    limits = Limits(
        body=parse_size(body_limit), rate=rate, burst=max(1, round(2 * rate)), seconds=timeout
    )
    if check_config:
        say(shown(context))
        return
    if replicas:
        check_replicas(host, port)
    bound = bind(host, port, shared=replicas > 0)
    opening: dict[str, Any] = {
        "key_age": key_age, "memory_limit": memory_limit, "scratch": scratch
    }  # fmt: skip
    answering: dict[str, Any] = {"tokens": tokens, "limits": limits, "access_log": access_log}
    make = partial(_application, path, given, following, opening, answering, plugins, threads)
    if not replicas:
        _run(make, bound)
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
        },
        log_format=log_format,
        access_log=access_log,
    )
    _run(make, bound, Replicas(replicas, orders))


def _application(
    path: Path,
    given: dict[str, Any],
    following: tuple[str, str | None] | None,
    opening: dict[str, Any],
    answering: dict[str, Any],
    plugins: list[str],
    threads: int,
    others: Replicas | None,
    progress: Progress,
) -> Application:
    """Open the folder, and return what answers from it; in a thread, while the service says so."""
    with spinner("loading torch"):
        import torch

        from evergraph.online.folder.learner_folder import LearnerFolder
        from evergraph.server.app import create_app
        from evergraph.server.leader import Leader, follower_folder

        torch.set_num_threads(threads)
        load_plugins(plugins)
    leader, opening = None, opening | {"progress": progress}
    if following is None:
        folder = LearnerFolder.of(path, given, **opening)
    else:
        leader = Leader(*following)
        folder = follower_folder(path, leader, **opening)
    place = None
    if others is not None:
        others.start()
        place = others.place
    return create_app(folder, leader=leader, place=place, **answering)


def _run(
    make: Callable[..., Application], bound: socket.socket, others: Replicas | None = None
) -> None:
    """Serve until told to stop; raise where there is nothing to serve."""
    from evergraph.server.listening import listen
    from evergraph.server.starting import Starting

    starting = Starting(partial(make, others))
    with nullcontext() if others is None else closing(others):
        listen(starting, bound, others=others)
    for handler in logging.getLogger().handlers:
        handler.flush()  # before anything else is said
    if starting.failed is not None:
        raise starting.failed
    if starting.abandoned:
        # A thread is still at work, and the interpreter would wait for what it holds. The folder
        # is as after a crash: everything acknowledged is in its journal.
        logging.shutdown()
        os._exit(0)
    if starting.state.following is not None and starting.state.following.failed:
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
