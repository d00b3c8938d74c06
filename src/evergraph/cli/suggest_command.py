"""``evergraph suggest``: which nodes to ask a person about."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import typer

from evergraph.cli.learner_target import opened
from evergraph.cli.options import CA, PLUGINS
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins
from evergraph.core.written_aside import written_aside

COLUMNS = ("id", "gain", "reach", "uncertainty", "first", "second")


def suggest_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    count: int = typer.Option(20, "-n", "--count", help="How many nodes, at most.", min=1),
    out: Path | None = typer.Option(None, help="The .csv to write (default: a table on stdout)."),
    token_file: Path | None = typer.Option(
        None, help="With a token that may read (default: none)."
    ),
    ca: Path | None = CA,
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Tell which unlabelled nodes are worth asking a person about, and why.

    gain: how much uncertainty the label is expected to reach; reach: how many nodes look at it;
    uncertainty: of its own prediction; then the two likeliest classes with their probabilities.
    """
    if out is not None and out.suffix != ".csv":
        raise ConfigurationError(f"--out must end in .csv, not {out.name!r}")
    load_plugins(plugins)
    with (
        spinner("asking" if "://" in target else "loading torch and the learner"),
        opened(target, token_file=token_file, scope="read", ca=ca) as learner,
    ):
        found = learner.suggest(count)
    if out is not None:
        _write(out, found)
    if as_json:
        print_json({"suggestions": found})
    elif out is None and found:
        print_table(COLUMNS, [_cells(row) for row in found])
    elif out is None:
        say("every node that is known has a label")


def _cells(row: dict[str, Any]) -> list[str]:
    """Return a suggestion as a line of a table.

    >>> _cells({"id": "a", "gain": 1.5, "reach": 3, "uncertainty": 0.25, "classes": ["x", "y"],
    ...         "probabilities": [0.8, 0.05]})
    ['a', '1.50', '3', '0.25', 'x (80 %)', 'y (5 %)']
    """
    doubt = row.get("uncertainty")
    shares = zip(row["classes"], row["probabilities"], strict=True)
    best = [f"{name} ({100 * share:.0f} %)" for name, share in shares]
    cells = [str(row["id"]), f"{row['gain']:.2f}", str(row["reach"])]
    cells += ["-" if doubt is None else f"{doubt:.2f}"]
    return [*cells, *best, *["-"] * (2 - len(best))]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write ids, numbers and classes as CSV; the file is there once all of it is."""
    with written_aside(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            doubt = row.get("uncertainty")
            classes = [*row["classes"], *[""] * (2 - len(row["classes"]))]
            numbers = [f"{row['gain']:.6f}", row["reach"], "" if doubt is None else f"{doubt:.6f}"]
            writer.writerow([row["id"], *numbers, *classes])
        text.detach()
