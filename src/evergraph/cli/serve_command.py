"""``evergraph serve``: a learner behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from evergraph.cli.options import parse_settings
from evergraph.cli.plugin_option import PLUGINS
from evergraph.cli.progress import spinner
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.sizes import parse_size


def serve_command(
    path: Path = typer.Argument(..., help="The learner's folder; created if there is none."),
    host: str = typer.Option("127.0.0.1", help="Where to listen."),
    port: int = typer.Option(8000, help="0 chooses a free port.", min=0, max=65535),
    token_file: Path | None = typer.Option(
        None,
        help="Lines 'read TOKEN' or 'write TOKEN'; needed to listen beyond this machine "
        "(default: none).",
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
    rate: float = typer.Option(1000.0, help="Requests per second, per token or address."),
    timeout: float = typer.Option(30.0, help="Seconds a request may take."),
    threads: int = typer.Option(
        1, help="Threads for learning; other cores answer requests.", min=1
    ),
    memory_limit: str | None = typer.Option(
        None, help="The most memory to hold, such as 2GB (default: all that it takes)."
    ),
    scratch: Path | None = typer.Option(
        None, help="Folder for what does not stay in memory (default: the system's temporary one)."
    ),
) -> None:
    """Serve a learner over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged change is on disk. A page at / shows what the learner knows. Without a
    token file only this machine may read and write.
    """
    for package in ("fastapi", "uvicorn"):
        require(package, extra="serve", why="serving")
    from evergraph.server.listening import bind, check_address, listen
    from evergraph.server.tokens import read_tokens

    check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else read_tokens(token_file)
    bound = bind(host, port)
    given = _given(topology, hops, head, parse_settings(settings))
    with spinner("loading torch and the learner"):
        from evergraph.online.folder.learner_folder import LearnerFolder
        from evergraph.server.app import create_app
        from evergraph.server.limits import Limits

        load_plugins(plugins)
        limits = Limits(
            body=parse_size(body_limit), rate=rate, burst=max(1, round(2 * rate)), seconds=timeout
        )
        folder = LearnerFolder.of(path, given, memory_limit=memory_limit, scratch=scratch)
        app = create_app(folder, tokens=tokens, limits=limits)
    listen(app, bound, threads=threads)


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
