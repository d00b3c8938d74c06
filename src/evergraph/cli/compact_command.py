"""``evergraph compact``: take a snapshot, and drop what is no longer needed."""

from __future__ import annotations

from pathlib import Path

import typer

from evergraph.cli.learner_target import opened
from evergraph.cli.options import CA, PLUGINS
from evergraph.cli.output import print_json, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins


def compact_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    now: bool = typer.Option(
        False, "--now", help="Leave the state of now and nothing older: what was forgotten goes."
    ),
    keys: bool = typer.Option(
        False, "--keys", help="With --now: drop the keys of deltas; one sent again counts as new."
    ),
    names: bool = typer.Option(
        False, "--names", help="With --now: replace names of classes that no node has any more."
    ),
    token_file: Path | None = typer.Option(
        None, help="With a token that may write (default: none)."
    ),
    ca: Path | None = CA,
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Take a snapshot of a learner, and drop what no recovery needs.

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
