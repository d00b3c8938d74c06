"""``evergraph backup``, ``restore``, ``check`` and ``compact``: keeping a learner's folder well."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli import options
from evergraph.cli.learner_target import opened, token_for
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import StageProgress, spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.online.folder.backup import BackedUp
    from evergraph.online.folder.journal_rows import SetAside

FOUND = 1  # the exit code where something was found; 2 is that of what cannot be read at all
ASIDE_COLUMNS = ("delta", "key", "bytes", "set aside", "why")


def check_command(
    folder: Path = typer.Argument(..., help="A learner's folder."),
    quick: bool = typer.Option(False, "--quick", help="Verify checksums alone, recompute nothing."),
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
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Verify every checksum of a folder, and recompute its learner's statistics.

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
        print_table(ASIDE_COLUMNS, rows)


def backup_command(
    source: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    to: Path = typer.Argument(..., help="A new folder, or a new file that ends in .tar."),
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    as_json: options.AsJson = False,
) -> None:
    """Copy a learner while it goes on learning; the copy is there whole, or not at all.

    evergraph restore makes a folder of it again.
    """
    with spinner("loading torch"):
        from evergraph.online.folder.backup import backup
        from evergraph.server.client import Client, is_url
    if is_url(source):
        with spinner(f"fetching {source}"):
            done = Client(source, token=token_for(token_file, "follow"), ca=ca).backup(to)
    else:
        for option, given in (("--token-file", token_file), ("--ca", ca)):
            if given is not None:
                raise ConfigurationError(f"{option} is for a service, and {source} is a folder")
        with StageProgress({"copy": "bytes"}) as progress:
            done = backup(Path(source), to, on_progress=progress.on_progress)
    _print_copied(done, to, as_json)


def _print_copied(done: BackedUp, to: Path, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    else:
        say(f"{to}: as of delta {done.seq:,}, {done.bytes / 1e6:,.1f} MB")


def restore_command(
    source: Path = typer.Argument(..., help="What evergraph backup wrote: a folder, or a .tar."),
    to: Path = typer.Argument(..., help="The folder to make; not there yet, or empty."),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Make a learner's folder of a backup, once all of it was found whole.

    The learner is opened once to prove it, which applies the deltas after the snapshot.
    """
    load_plugins(plugins)
    with spinner("loading torch"):
        from evergraph.online.folder.backup import restore
    with StageProgress({"copy": "bytes", "verify": "deltas"}) as progress:
        done = restore(source, to, on_progress=progress.on_progress)
    _print_copied(done, to, as_json)


def compact_command(
    target: options.LearnerTarget,
    now: bool = typer.Option(
        False, "--now", help="Keep only the current state: erase history, and what was forgotten."
    ),
    keys: bool = typer.Option(
        False, "--keys", help="With --now: drop the keys of deltas; one sent again counts as new."
    ),
    names: bool = typer.Option(
        False, "--names", help="With --now: replace names of classes that no node has any more."
    ),
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Snapshot a learner, and trim its journal to what a recovery needs.

    With --now nothing is left that is older than the snapshot. A forgotten node's part in the
    medians, scales and word counts of the first table stays, and hashes of its categories: see
    "What is left of a forgotten node" in docs/online-durability.md. Give it again after an error:
    it does what is left to do.
    """
    if (keys or names) and not now:
        raise ConfigurationError(f"--{'keys' if keys else 'names'} goes with --now only")
    load_plugins(plugins)
    with (
        spinner("compacting"),
        opened(target, token_file=token_file, scope="write", new=False, ca=ca) as learner,
    ):
        done = learner.compact(now=now, keys=keys, names=names)
    if as_json:
        print_json(done)
        return
    before, after = (f"{done[name] / 1e6:,.1f} MB" for name in ("bytes_before", "bytes_after"))
    gone = f", {done['places']:,} places of forgotten nodes are gone" if done["places"] else ""
    say(f"snapshot {done['seq']}: {before} before, {after} now{gone}")
