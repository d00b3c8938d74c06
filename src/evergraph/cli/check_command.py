"""``evergraph check``: whether a learner's folder is sound."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from evergraph.cli.options import PLUGINS
from evergraph.cli.output import print_json, say
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.plugins import load_plugins

FOUND = 1  # the exit code where something was found; 2 is that of what cannot be read at all


def check_command(
    folder: Path = typer.Argument(..., help="A learner's folder."),
    quick: bool = typer.Option(
        False, "--quick", help="Look at files and checksums alone, and count nothing anew."
    ),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Look at every file of a folder and its checksum, and count anew what its learner summed up.

    Prints a line for each finding. Exit code 0: none; 1: some; 2: no learner can be read there.
    Nothing is changed, and the learner may go on. It takes about as long as learning everything,
    and twice the memory.
    """
    load_plugins(plugins)
    with spinner("loading torch"):
        from evergraph.online.folder.checkup import checkup
    with StageProgress({"verify": "deltas"}) as progress:
        found = checkup(folder, quick=quick, on_progress=progress.on_progress)
    if as_json:
        print_json({"sound": not found, "findings": [asdict(each) for each in found]})
    for each in () if as_json else found:
        say(f"{each.file}: {each.what}")
    if not as_json and not found:
        say(f"{folder} is sound")
    if found:
        raise typer.Exit(FOUND)
