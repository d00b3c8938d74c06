"""``evergraph backup``: a copy of a learner that is right while it goes on learning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.learner_target import token_for
from evergraph.cli.options import CA
from evergraph.cli.output import print_json, say
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    from evergraph.online.folder.backup import BackedUp


def backup_command(
    source: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    to: Path = typer.Argument(..., help="A new folder, or a new file that ends in .tar."),
    token_file: Path | None = typer.Option(
        None, help="With a token that may follow or write (default: none)."
    ),
    ca: Path | None = CA,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Copy a learner while it goes on learning; the copy is there whole, or not at all.

    evergraph restore makes a folder of it again.
    """
    done = _done(source, to, token_file, ca)
    if as_json:
        print_json(asdict(done))
    else:
        say(f"{to}: as of delta {done.seq:,}, {done.bytes / 1e6:,.1f} MB")


def _done(source: str, to: Path, token_file: Path | None, ca: Path | None) -> BackedUp:
    with spinner("loading torch"):
        from evergraph.online.folder.backup import backup
        from evergraph.server.client import Client, is_url
    if is_url(source):
        with spinner(f"fetching {source}"):
            return Client(source, token=token_for(token_file, "follow"), ca=ca).backup(to)
    for option, given in (("--token-file", token_file), ("--ca", ca)):
        if given is not None:
            raise ConfigurationError(f"{option} is for a service, and {source} is a folder")
    with StageProgress({"copy": "bytes"}) as progress:
        return backup(Path(source), to, on_progress=progress.on_progress)
