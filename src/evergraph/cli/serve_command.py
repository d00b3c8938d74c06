"""``evergraph serve``: a learner behind HTTP."""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import typer

from evergraph.cli.options import Plugins, parse_settings
from evergraph.cli.output import say
from evergraph.cli.progress import spinner
from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError, UnknownNameError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.sizes import parse_size

if TYPE_CHECKING:
    from evergraph.online.folder.status import Progress
    from evergraph.server.app import Application
    from evergraph.server.startup import Starting


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TYPED_ONLY = ("config", "check_config", "help")  # these make no sense in a file


def use_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file for defaults: the callback of an eager option ``--config``."""
    if path is not None and not context.resilient_parsing:
        context.default_map = options_in(path, context.command)
    return path


def options_in(path: Path, command: Any) -> dict[str, Any]:
    """Return the values of a file by the names of a command's parameters."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read as TOML ({error})") from error
    names, kinds = option_names(command), get_type_hints(inspect.unwrap(command.callback))
    found: dict[str, Any] = {}
    for key, value in values.items():
        plain = key.replace("_", "-")
        if plain not in names:
            raise UnknownNameError(f"option in {path}", key, names)
        if names[plain] in found:
            raise ConfigurationError(f"{path}: {plain} must be there once, not twice")
        _check_kind(path, key, value, kinds[names[plain]])
        found[names[plain]] = value
    return found


def option_names(command: Any) -> dict[str, str]:
    """Return what options are called in a file, and the parameters that they are."""
    return {
        option.removeprefix("--"): parameter.name
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and parameter.name not in TYPED_ONLY
    }


def _check_kind(path: Path, key: str, value: object, kind: Any) -> None:
    """Raise unless a value is of the kind that its option takes."""
    rule, fits = _rule(kind, value)
    if not fits:
        raise ConfigurationError(
            f"{path}: {key} must be {rule}, not {json.dumps(value, default=str)}"
        )


def _rule(kind: Any, value: object) -> tuple[str, bool]:
    """Return what an option takes, for a sentence, and whether a value is that.

    >>> _rule(int | None, "8000"), _rule(list[str], ["a=1"])
    (('a whole number', False), ('a list of strings', True))
    """
    kinds = {each for each in get_args(kind) if each is not type(None)} or {kind}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if get_origin(kind) is list:
        is_list = isinstance(value, list) and all(isinstance(part, str) for part in value)
        return "a list of strings", is_list
    if bool in kinds:
        return "true or false", isinstance(value, bool)
    if float in kinds:
        return "a number", number
    if int in kinds:
        return "a whole number", number and isinstance(value, int)
    return "a string", isinstance(value, str)


def shown(context: typer.Context) -> str:
    """Return all options as a file would have them; those that are not set as comments."""
    values = context.params
    return "\n".join(
        _line(option, values[name]) for option, name in option_names(context.command).items()
    )


def _line(option: str, value: Any) -> str:
    """Return a line of TOML.

    >>> _line("host", "127.0.0.1"), _line("scratch", None)
    ('host = "127.0.0.1"', '# scratch is not set')
    """
    if value is None:
        return f"# {option} is not set"
    if isinstance(value, (list, tuple)):
        return f"{option} = {json.dumps([*map(str, value)], ensure_ascii=False)}"
    if isinstance(value, (bool, int, float)):
        return f"{option} = {json.dumps(value)}"
    return f"{option} = {json.dumps(str(value), ensure_ascii=False)}"


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
    plugins: Plugins = [],
    body_limit: str = typer.Option("32MB", help="The largest request body."),
    json_limit: str = typer.Option(
        "1MB", help="The largest body of JSON: while one is read nobody else is answered."
    ),
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
    from evergraph.server.auth import read_tokens, tls_of
    from evergraph.server.limits import Limits
    from evergraph.server.log import FORMATS, written_log
    from evergraph.server.running import (
        Reload,
        bind,
        check_address,
        check_proxies,
        listen,
        outlive_hang_ups,
    )
    from evergraph.server.startup import Starting

    outlive_hang_ups()
    check_choice("log format", log_format, FORMATS)
    # Read by numpy when it is loaded: predictions of a node are too small to be shared by threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))
    check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else read_tokens(token_file)
    tls = tls_of(tls_cert, tls_key, tls_key_password_file)
    check_proxies(proxies)
    given = _given(topology, hops, head, parse_settings(settings))
    if read_only and given:
        raise ConfigurationError(
            f"with --read-only the learner is as it was made: leave out {next(iter(given))}"
        )
    limits = Limits(
        body=parse_size(body_limit),
        json=parse_size(json_limit),
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

    def application(progress: Progress) -> Application:
        """Open the folder, and return what answers from it: in a thread, which says how far it is.

        What is slow to load is loaded here, too.
        """
        with spinner("loading torch"):
            import torch

            from evergraph.online.folder.learner_folder import LearnerFolder
            from evergraph.online.intake import Bounds
            from evergraph.server.app import create_app

            torch.set_num_threads(threads)
            load_plugins(plugins)
        folder = LearnerFolder.of(
            path,
            given,
            readonly=read_only,
            key_age=key_age,
            replay_seconds=replay_seconds,
            memory_limit=memory_limit,
            scratch=scratch,
            threads=threads,
            bounds=Bounds(delta_classes, memory),
            progress=progress,
        )
        return create_app(folder, tokens=tokens, limits=limits, access_log=access_log)

    memory = None if delta_memory is None else parse_size(delta_memory)
    reload = Reload(token_file=token_file, tokens=tokens, tls=tls)
    with written_log(log_format):
        starting = Starting(application)
        listen(starting, bound, limits=limits, tls=tls, proxies=proxies, reload=reload)
        _ended(starting)


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


def _ended(starting: Starting) -> None:
    """Tell how a service ended that is told to stop: raise where there was nothing to serve."""
    if starting.failed is not None:
        raise starting.failed
    if starting.abandoned:
        # A thread is still at work, and the interpreter would wait for what it holds. The folder
        # is as after a crash: everything acknowledged is in its journal.
        logging.shutdown()
        os._exit(0)
    if starting.state.failed.is_set():  # the log has said why
        raise typer.Exit(1)
