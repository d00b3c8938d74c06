"""``evergraph check``: whether a learner's folder is sound, and leaving out what is not."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.options import PLUGINS
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.online.folder.journal_rows import SetAside

FOUND = 1  # the exit code where something was found; 2 is that of what cannot be read at all
COLUMNS = ("delta", "key", "bytes", "set aside", "why")


def check_command(
    folder: Path = typer.Argument(..., help="A learner's folder."),
    quick: bool = typer.Option(
        False, "--quick", help="Look at files and checksums alone, and count nothing anew."
    ),
    skipped: list[int] = typer.Option(
        [],
        "--skip",
        metavar="N",
        help="Leave delta N out, where nobody writes to the folder; may be given more than once "
        "(default: none, check the folder).",
        min=1,
    ),
    why: str | None = typer.Option(
        None, help="The reason, which is kept with the delta (default: none; needed with --skip)."
    ),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Look at every file of a folder and its checksum, and count anew what its learner summed up.

    Prints a line for each finding, and deltas that were set aside. Exit code 0: no finding; 1:
    some; 2: no learner can be read there. Nothing is changed, and the learner may go on. It takes
    about as long as learning everything, and twice the memory.

    With --skip the learner is made as if a delta had brought nothing; its bytes are kept. What came
    after is tried first, and where that fails without it, nothing is changed.
    """
    if skipped and why is None:
        raise ConfigurationError("--skip needs --why, the reason, which is kept with the delta")
    if why is not None and not skipped:
        raise ConfigurationError(f"--why {why!r} needs --skip, the number of a delta")
    load_plugins(plugins)
    with spinner("loading torch"):
        from evergraph.online.folder.checkup import checkup, listed, skip
    if why is not None:
        with spinner("applying the deltas after it"):
            aside = skip(folder, *skipped, why=why)
        if as_json:
            print_json({"set_aside": [asdict(each) for each in aside]})
        else:
            _print(aside)
        return
    with StageProgress({"verify": "deltas"}) as progress:
        found = checkup(folder, quick=quick, on_progress=progress.on_progress)
    aside = listed(folder)
    if as_json:
        findings, kept = ([asdict(each) for each in part] for part in (found, aside))
        print_json({"sound": not found, "findings": findings, "set_aside": kept})
    else:
        for each in found:
            say(f"{each.file}: {each.what}")
        if not found:
            say(f"{folder} is sound")
        _print(aside)
    if found:
        raise typer.Exit(FOUND)


def _print(aside: list[SetAside]) -> None:
    """Print the deltas that were set aside, if any."""
    rows = []
    for each in aside:
        when = datetime.fromtimestamp(each.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
        rows.append([str(each.seq), each.key or "-", f"{each.size:,}", when, each.why])
    if rows:
        print_table(COLUMNS, rows)
