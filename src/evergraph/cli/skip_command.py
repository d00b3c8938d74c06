"""``evergraph skip``: leave out a delta that a folder cannot be opened with."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.options import PLUGINS
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.online.folder.set_aside import SetAside

COLUMNS = ("delta", "key", "bytes", "set aside", "why")


def skip_command(
    path: Path = typer.Argument(..., help="The learner's folder, which nobody is writing to."),
    deltas: list[int] = typer.Option(
        [],
        "--delta",
        metavar="N",
        help="The number of a delta to leave out; may be given more than once (default: none, list "
        "what was set aside).",
        min=1,
    ),
    why: str | None = typer.Option(
        None, help="The reason, which is kept with the delta (default: none; needed with --delta)."
    ),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """List the deltas that were set aside, or set one aside.

    The learner is then as if that delta had brought nothing. Its bytes are kept. What came after
    is tried first, and where that fails without it, nothing is changed.
    """
    if deltas and why is None:
        raise ConfigurationError("--delta needs --why, the reason, which is kept with the delta")
    if why is not None and not deltas:
        raise ConfigurationError(f"--why {why!r} needs --delta, the number of a delta")
    load_plugins(plugins)
    with spinner("applying the deltas after it" if deltas else "loading torch"):
        from evergraph.online.folder.skipping import listed, skip

        found = skip(path, *deltas, why=why) if why is not None else listed(path)
    if as_json:
        print_json({"set_aside": [asdict(each) for each in found]})
    elif found:
        print_table(COLUMNS, [_cells(each) for each in found])
    else:
        say("nothing was set aside")


def _cells(found: SetAside) -> list[str]:
    """Return a delta that was set aside as a line of a table."""
    when = datetime.fromtimestamp(found.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return [str(found.seq), found.key or "-", f"{found.size:,}", when, found.why]
