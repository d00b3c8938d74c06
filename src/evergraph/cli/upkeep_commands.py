"""``evergraph refit``, ``compact``, ``backup``, ``restore`` and ``check``: upkeep of a learner."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli import options
from evergraph.cli.inputs import with_shared_options
from evergraph.cli.learner_target import Access
from evergraph.cli.options import argument, flag, option
from evergraph.cli.output import StageProgress, print_json, print_table, say, spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.packages import load_plugins
from evergraph.core.sizes import shown
from evergraph.server.client import is_url

if TYPE_CHECKING:
    from evergraph.online.folder.backup import BackedUp
    from evergraph.online.folder.journal import SetAside

EXIT_IF_FOUND = 1  # exit code if there are findings; 2 means that no learner could be read


def check_command(
    folder: Path = argument("A learner's folder."),
    quick: bool = flag("--quick", "Only verify checksums; apply no deltas."),
    deep: bool = flag(
        "--deep", "Also compute what every snapshot holds from its graph and labels."
    ),
    skipped: list[int] = option(
        "Leave out delta N while no process writes to the folder; may be repeated "
        "(default: none, check the folder).",
        "--skip",
        default=[],
        metavar="N",
        min=1,
    ),
    why: str | None = option("The reason for --skip, stored with the delta (default: none)."),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Verify every checksum, and that the deltas of the journal give its snapshots.

    This finds what a disk or a bug has changed, not every forgery: whoever can write to the folder
    can make checksums again, and change a value with all that follows from it. --deep finds values
    that do not follow from the graph and the labels beside them.

    Prints one line per finding, and the deltas that were set aside. Exit code 0: no findings; 1:
    findings; 2: no learner can be read. Nothing is changed, and the learner may stay in use. This
    takes about as long as applying the deltas since the oldest snapshot.

    With --skip the learner is rebuilt as if the delta were empty; its bytes are kept. The later
    deltas are tried first: if they fail without it, nothing is changed.
    """
    if quick and deep:
        raise ConfigurationError("--quick and --deep exclude each other")
    if skipped and why is None:
        raise ConfigurationError("--skip needs --why, the reason, which is stored with the delta")
    if why is not None and not skipped:
        raise ConfigurationError(f"--why {why!r} needs --skip, the number of a delta")
    load_plugins(plugins)
    with spinner("loading torch"):
        from evergraph.online.folder.checkup import checkup, listed, skip
    if why is not None:
        with spinner("applying the deltas after it"):
            set_aside = skip(folder, *skipped, why=why)
        if as_json:
            print_json({"set_aside": [asdict(delta) for delta in set_aside]})
        else:
            _print_aside(set_aside)
        return
    with StageProgress({"verify": "deltas"}) as progress:
        findings = checkup(folder, quick=quick, deep=deep, on_progress=progress.on_progress)
    set_aside = listed(folder)
    if as_json:
        print_json(
            {
                "sound": not findings,
                "findings": [asdict(finding) for finding in findings],
                "set_aside": [asdict(delta) for delta in set_aside],
            }
        )
    else:
        for finding in findings:
            say(f"{finding.file}: {finding.what}")
        if not findings:
            say(f"{folder}: no findings")
        _print_aside(set_aside)
    if findings:
        raise typer.Exit(EXIT_IF_FOUND)


def _print_aside(set_aside: list[SetAside]) -> None:
    rows = []
    for delta in set_aside:
        when = datetime.fromtimestamp(delta.time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        rows.append([str(delta.seq), delta.key or "-", f"{delta.size:,}", when, delta.why])
    if rows:
        print_table(("delta", "key", "bytes", "set aside", "why"), rows)


@with_shared_options
def backup_command(
    source: str = argument("A learner's folder, or the URL of a service."),
    to: Path = argument("A new folder, or a new file that ends in .tar."),
    access: Access = Access(),
    as_json: options.AsJson = False,
) -> None:
    """Copy a learner while it stays in use.

    The copy appears only when it is complete. evergraph restore turns it into a folder again.
    """
    with spinner("loading torch"):
        from evergraph.online.folder.backup import backup
    if is_url(source):
        with spinner(f"fetching {source}"):
            done = access.client(source, "follow").backup(to)
    else:
        access.check_folder(source)
        with StageProgress({"copy": "bytes"}) as progress:
            done = backup(Path(source), to, on_progress=progress.on_progress)
    _print_copied(done, to, as_json)


def _print_copied(done: BackedUp, to: Path, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    else:
        say(f"{to}: as of delta {done.seq:,}, {shown(done.bytes)}")


def restore_command(
    source: Path = argument("What evergraph backup wrote: a folder, or a .tar."),
    to: Path = argument("The folder to create; it must be new or empty."),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Restore a learner's folder from a backup.

    The whole backup is verified first. The learner is opened once as a test, which applies the
    deltas after the snapshot.
    """
    load_plugins(plugins)
    with spinner("loading torch"):
        from evergraph.online.folder.backup import restore
    with StageProgress({"copy": "bytes", "verify": "deltas"}) as progress:
        done = restore(source, to, on_progress=progress.on_progress)
    _print_copied(done, to, as_json)


@with_shared_options
def refit_command(
    target: options.LearnerTarget,
    access: Access = Access(),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Learn everything again from the nodes that are there now.

    Afterwards the learner is what one would be that was given all of it at once: the order in which
    nodes came no longer matters. A service answers predictions meanwhile, and changes wait.
    """
    doing = "learning everything again"
    with access.open(target, "write", plugins=plugins, doing=doing) as learner:
        done = learner.refit()
    if as_json:
        print_json(done)
    else:
        say(f"delta {done['seq']}: {done['counted']:,} labelled nodes learned again")


@with_shared_options
def compact_command(
    target: options.LearnerTarget,
    now: bool = flag("--now", "Keep only the current state; erase history and forgotten nodes."),
    keys: bool = flag("--keys", "With --now: drop delta keys; a delta sent again counts as new."),
    access: Access = Access(),
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """Snapshot the learner and trim its journal.

    With --now nothing older than the snapshot is left, and no class without nodes. A forgotten
    node's contribution to the medians, scales and word counts of the first table remains, and so do
    hashes of its categories: see "What is left of a forgotten node" in docs/live-in-depth.md. After
    an error, run the same command again to finish.
    """
    if keys and not now:
        raise ConfigurationError("--keys needs --now")
    with access.open(target, "write", plugins=plugins, doing="compacting") as learner:
        done = learner.compact(now=now, keys=keys)
    if as_json:
        print_json(done)
        return
    before, after = (shown(done[name]) for name in ("bytes_before", "bytes_after"))
    removed = f", {done['places']:,} positions of forgotten nodes removed" if done["places"] else ""
    say(f"snapshot {done['seq']}: {before} before, {after} now{removed}")
