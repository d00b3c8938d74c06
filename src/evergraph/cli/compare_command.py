"""``evergraph compare``: which of two methods is better, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.output import print_json, say
from evergraph.core.errors import ResultsError

if TYPE_CHECKING:
    from evergraph.reports.trials import Trials

Place = tuple[str, str]
"""A dataset and a setting."""


def compare_command(
    a: str = typer.Argument(..., help="A results folder, or a method's name with --in."),
    b: str = typer.Argument(..., help="What it is compared with."),
    folder: Path | None = typer.Option(
        None,
        "--in",
        help="Where the methods are looked for: a folder of runs, or the results book "
        "(default: A and B are folders).",
    ),
    testing: str | None = typer.Option(
        None, help="local or global (default: that of the protocol, else local)."
    ),
    averaging: str | None = typer.Option(
        None, help="balanced or plain (default: that of the protocol, else balanced)."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Say by how much A is better than B, and whether that is more than chance.

    Repeats are paired by seed and split. Where there are several datasets, every one has its
    sentence, and Wilcoxon's test over all of them follows.
    """
    from evergraph.cli.compared_runs import found_trials
    from evergraph.reports.comparing import compare_trials, corrected, over_datasets

    ours = found_trials(a, folder, testing=testing, averaging=averaging)
    theirs = found_trials(b, folder, testing=testing, averaging=averaging)
    common = _common(a, ours, b, theirs)
    pairs = [_named_apart(a, ours[place], b, theirs[place]) for place in common]
    found = corrected([compare_trials(*pair) for pair in pairs])
    over = over_datasets(found)
    if as_json:
        told = [each.to_dict() for each in found]
        print_json({"comparisons": told, "over_datasets": [each.to_dict() for each in over]})
        return
    for sentence in (*(each.sentence for each in found), *(each.sentence for each in over)):
        say(sentence)


def _common(a: str, ours: dict[Place, Trials], b: str, theirs: dict[Place, Trials]) -> list[Place]:
    """Return where both have been run, and say where only one has."""
    common = [place for place in ours if place in theirs]
    if not common:
        raise ResultsError(
            f"{a} and {b} have no dataset and setting in common: {a} has {_told(ours)}, "
            f"{b} has {_told(theirs)}"
        )
    for name, places, others in ((a, ours, theirs), (b, theirs, ours)):
        if alone := [place for place in places if place not in others]:
            say(f"left out, since only {name} was run there: {_told(alone)}", err=True)
    return common


def _told(places: Iterable[Place]) -> str:
    return "; ".join(", ".join(place) for place in places)


def _named_apart(a: str, ours: Trials, b: str, theirs: Trials) -> tuple[Trials, Trials]:
    """Return both; where they have one name, each with the place where it was found."""
    if ours.name != theirs.name:
        return ours, theirs
    return (
        replace(ours, name=f"{ours.name} ({a})"),
        replace(theirs, name=f"{theirs.name} ({b})"),
    )
