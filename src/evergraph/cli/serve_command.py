"""``evergraph serve``: serve a learner over HTTP."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.learner_target import advising
from evergraph.cli.options import Plugins, argument, flag, option, parse_settings
from evergraph.cli.output import say, spinner
from evergraph.core.errors import ConfigurationError, UnknownNameError, check_choice
from evergraph.core.packages import load_plugins, require, tomllib
from evergraph.core.sizes import parse_size, return_freed_memory

if TYPE_CHECKING:
    from fastapi import FastAPI

    from evergraph.online.folder.recovery import Progress

TYPED_ONLY = ("config", "check_config", "help")  # not meaningful in a file


def use_file(context: typer.Context, path: Path | None) -> Path | None:
    """Use the options of a file as defaults: the callback of the eager option ``--config``."""
    if path is not None and not context.resilient_parsing:
        context.default_map = options_in(path, context.command)
    return path


def options_in(path: Path, command: Any) -> dict[str, Any]:
    """Return the values of a file by the command's parameter names."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read as TOML ({error})") from error
    names = option_names(command)
    parameters: dict[str, Any] = {}
    for key, value in values.items():
        option_name = key.replace("_", "-")
        if option_name not in names:
            raise UnknownNameError(f"option in {path}", key, names)
        if names[option_name] in parameters:
            raise ConfigurationError(f"{path}: {option_name} must be given once, not twice")
        parameters[names[option_name]] = value
    return parameters


def option_names(command: Any) -> dict[str, str]:
    """Return the parameter name of each option name in a file."""
    in_file = [parameter for parameter in command.params if parameter.name not in TYPED_ONLY]
    return {
        option.removeprefix("--"): parameter.name
        for parameter in in_file
        for option in parameter.opts
        if option.startswith("--")
    }


def serve_command(
    context: typer.Context,
    path: Path = argument("The learner's folder; created if it does not exist."),
    host: str = option("Address to listen on.", default="127.0.0.1"),
    port: int = option("Port to listen on; 0 chooses a free one.", default=8000, min=0, max=65535),
    token_file: Path | None = option(
        "Lines 'read TOKEN', 'follow TOKEN' or 'write TOKEN'; needed to listen beyond this "
        "machine (default: none)."
    ),
    topology: str | None = option("f_topo if the folder is new (default: the head's own)."),
    hops: int | None = option("L if the folder is new (default: 2)."),
    head: str | None = option("Head if the folder is new (default: auto)."),
    objective: str | None = option(
        "Accuracy to learn for if the folder is new, balanced or plain (default: balanced)."
    ),
    settings: list[str] = option(
        "Settings if the folder is new, such as head.width=2048.",
        "--set",
        default=[],
        metavar="KEY=VALUE",
    ),
    plugins: Plugins = [],
    body_limit: str = option("Largest request body.", default="32MB"),
    json_limit: str = option(
        "Largest JSON body; parsing one delays all other requests.", default="1MB"
    ),
    rate: float = option("Maximum requests per second, per token or address.", default=10_000.0),
    timeout: float = option("Maximum seconds per request.", default=30.0),
    delta_classes: int = option("Maximum new classes in one change.", default=1_000, min=1),
    delta_memory: str | None = option(
        "Maximum memory to learn one change, such as 2GB (default: half of the free memory)."
    ),
    key_age: float = option("Minimum days that a delta's key is remembered.", default=7.0, min=0),
    replay_seconds: float = option(
        "Seconds of learning between snapshots; a restart repeats no more than that.",
        default=10.0,
        min=0,
    ),
    threads: int = option("Threads for learning; other cores serve requests.", default=1, min=1),
    read_only: bool = flag(
        "--read-only",
        "Serve reads while another process writes to the folder, and follow its changes.",
    ),
    log_format: str = option("Log format: text or json.", default="text"),
    access_log: bool = flag("--access-log", "Log every request."),
    config: Path | None = option(
        "TOML file of options by name; the command line takes precedence (default: none).",
        metavar="FILE",
        is_eager=True,
        callback=use_file,
    ),
    check_config: bool = flag("--check-config", "Print the options that would be used, and exit."),
    tls_cert: Path | None = option("PEM file of a certificate, to serve https (default: http)."),
    tls_key: Path | None = option(
        "PEM file of the certificate's key, readable by its owner only (default: none)."
    ),
    tls_key_password_file: Path | None = option(
        "File with the key's password (default: no password)."
    ),
    proxies: list[str] = option(
        "Address or network of a proxy whose X-Forwarded-For is trusted (default: none).",
        "--proxy",
        default=[],
        metavar="ADDRESS",
    ),
    connections: int = option("Maximum open connections.", default=1_000, min=1),
    header_timeout: float = option("Maximum seconds to receive a request's headers.", default=10.0),
    idle_timeout: float = option("Seconds before an idle connection is closed.", default=15.0),
    held_limit: str = option("Maximum memory for all request bodies together.", default="256MB"),
) -> None:
    """Serve a learner over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged change is on disk. A page at / shows the learner's state. Without a token
    file only this machine may read and write.
    """
    # Read by numpy when it is loaded, so before the imports below. A few nodes' predictions are too
    # small to split: threads would wait for each other, see benchmarks/service.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return_freed_memory()
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        require(package, extra="serve", why="serving")
    from evergraph.server import running
    from evergraph.server.auth import read_tokens, tls_of
    from evergraph.server.http import Limits
    from evergraph.server.observability import FORMATS, log_to_stderr
    from evergraph.server.startup import Starting

    running.ignore_sighup()
    check_choice("log format", log_format, FORMATS)
    running.check_address(host, has_tokens=token_file is not None)
    tokens = None if token_file is None else read_tokens(token_file)
    tls = tls_of(tls_cert, tls_key, tls_key_password_file)
    running.check_proxies(proxies)
    parameters = parse_settings(settings)  # the learner's parameters
    of_topology: dict[str, Any] = {"name": topology, "hops": hops}
    of_head = {"name": head, "objective": objective or parameters.pop("objective", None)}
    for name, values in (("topology", of_topology), ("head", of_head)):
        if set_values := {key: value for key, value in values.items() if value is not None}:
            parameters[name] = parameters.get(name, {}) | set_values
    if read_only and parameters:
        message = f"--read-only cannot change the learner: leave out {next(iter(parameters))}"
        raise ConfigurationError(message)
    limits = Limits(
        body=parse_size(body_limit),
        json=parse_size(json_limit),
        held=parse_size(held_limit),
        rate=rate,
        burst=max(1, round(2 * rate)),
        seconds=timeout,
        connections=connections,
        header_seconds=header_timeout,
        idle_seconds=idle_timeout,
    )
    if check_config:
        for option, name in option_names(context.command).items():  # as TOML
            value = context.params[name]
            if value is None:
                say(f"# {option} is not set")
                continue
            if isinstance(value, (list, tuple)):
                value = [*map(str, value)]
            plain = value if isinstance(value, (bool, int, float, list)) else str(value)
            say(f"{option} = {json.dumps(plain, ensure_ascii=False)}")
        return
    bound = running.bind(host, port)

    def application(progress: Progress) -> FastAPI:
        """Open the folder and return the application; runs in a thread that reports its progress.

        Slow imports are made here, too.
        """
        with spinner("loading torch"):
            import torch

            from evergraph.online.folder.learner_folder import LearnerFolder
            from evergraph.online.intake import Bounds
            from evergraph.server.app import create_app

            torch.set_num_threads(threads)
            load_plugins(plugins)
        with advising("give --read-only"):
            folder = LearnerFolder.open(
                path,
                parameters,
                readonly=read_only,
                key_age=key_age,
                replay_seconds=replay_seconds,
                threads=threads,
                bounds=Bounds(delta_classes, memory),
                progress=progress,
            )
        return create_app(folder, tokens=tokens, limits=limits, access_log=access_log)

    memory = None if delta_memory is None else parse_size(delta_memory)
    reload = running.Reload(token_file=token_file, tokens=tokens, tls=tls)
    with log_to_stderr(log_format):
        starting = Starting(application)
        running.listen(starting, bound, limits=limits, tls=tls, proxies=proxies, reload=reload)
        if starting.failed is not None:
            raise starting.failed
        if starting.abandoned:
            # A thread is still running, and the interpreter would wait for it. The folder is left
            # as after a crash: every acknowledged change is in its journal.
            logging.shutdown()
            os._exit(0)
        if starting.state.failed.is_set():  # the log has the reason
            raise typer.Exit(1)
