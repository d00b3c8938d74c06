"""``evergraph restore``: make a learner's folder of a backup."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from evergraph.cli.options import PLUGINS
from evergraph.cli.output import print_json, say
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.plugins import load_plugins


def restore_command(
    source: Path = typer.Argument(..., help="What evergraph backup wrote: a folder, or a .tar."),
    to: Path = typer.Argument(..., help="The folder to make; not there yet, or empty."),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Make a learner's folder of a backup, once all of it was found whole.

    The learner is opened once to prove it, which applies the deltas after the snapshot.
    """
    load_plugins(plugins)
    with spinner("loading torch"):
        from evergraph.online.folder.backup import restore
    with StageProgress({"copy": "bytes", "verify": "deltas"}) as progress:
        done = restore(source, to, on_progress=progress.on_progress)
    if as_json:
        print_json(asdict(done))
    else:
        say(f"{to}: as of delta {done.seq:,}, {done.bytes / 1e6:,.1f} MB")
