"""``evergraph report`` and ``compare``: use of finished runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evergraph.cli import options
from evergraph.cli.learner_commands import report_learner
from evergraph.cli.learner_target import is_learner
from evergraph.cli.options import argument, option
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError, ResultsError, UnknownNameError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.written_aside import check_writable

if TYPE_CHECKING:
    from evergraph.reports.trials import Trials

Place = tuple[str, str]
"""A dataset and a setting."""


def report_command(
    folder: Path = argument(
        "A results folder, a folder of them, or a learner.", default=Path("runs")
    ),
    against: str | None = option("The method to compare the others with (default: the best)."),
    out: Path | None = option("For a learner: the page (default: LEARNER-report.html)."),
    plugins: options.Plugins = [],
) -> None:
    """Compare the finished runs in a folder, or draw a learner, in tables and a page.

    FOLDER/report.html contains everything and opens offline; its tables (CSV, Markdown, LaTeX) and
    figures (PNG, SVG) are also in FOLDER/report. The page of a learner, beside its folder, has its
    accuracy over time, its classes, how they change, and which it confuses.
    """
    load_plugins(plugins)
    if is_learner(folder):
        report_learner(folder, out)
        return
    if out is not None:
        raise ConfigurationError(f"--out is for a learner's folder, and {folder} is none")
    require("matplotlib", extra="report", why="evergraph report")
    from evergraph.reports.report import write_report
    from evergraph.reports.run_tables import comparison
    from evergraph.reports.runs import collect

    runs = collect(folder)
    check_writable(folder)
    with spinner("drawing the report"):
        path = write_report(runs, folder, against=against)  # before printing, which may fail
    table = comparison(runs)
    print_table(table.headings, table.texts, table.caption)
    say(f"tables and figures: {path.with_suffix('')}")
    say(f"report: {path}")


def compare_command(
    a: str = argument("A results folder, or a method's name with --in."),
    b: str = argument("The run or method to compare it with."),
    folder: Path | None = option(
        "Where to find the methods: a folder of runs, or the results book "
        "(default: A and B are folders).",
        "--in",
    ),
    testing: str | None = option("local or global (default: the protocol's, else local)."),
    averaging: str | None = option("balanced or plain (default: the protocol's, else balanced)."),
    as_json: options.AsJson = False,
) -> None:
    """Test whether run A is better than run B, and by how much.

    Repeats are paired by seed and split. With several datasets there is one sentence for each,
    and then Wilcoxon's test over all of them.
    """
    from evergraph.reports.comparing import compare_trials, corrected, over_datasets

    def told(places: Iterable[Place]) -> str:
        return "; ".join(", ".join(place) for place in places)

    ours, theirs = (found_trials(typed, folder, testing, averaging) for typed in (a, b))
    common = [place for place in ours if place in theirs]
    if not common:
        raise ResultsError(
            f"{a} and {b} have no dataset and setting in common: {a} has {told(ours)}, "
            f"{b} has {told(theirs)}"
        )
    for name, places, others in ((a, ours, theirs), (b, theirs, ours)):
        if alone := [place for place in places if place not in others]:
            say(f"left out, because only {name} has results: {told(alone)}", err=True)
    pairs = []
    for one, other in ((ours[place], theirs[place]) for place in common):
        if one.name == other.name:  # told apart by their folders
            one, other = (replace(x, name=f"{x.name} ({n})") for x, n in ((one, a), (other, b)))
        pairs.append((one, other))
    found = corrected([compare_trials(*pair) for pair in pairs])
    over = over_datasets(found)
    if as_json:
        each = [comparison.to_dict() for comparison in found]
        print_json({"comparisons": each, "over_datasets": [one.to_dict() for one in over]})
        return
    for sentence in (*(each.sentence for each in found), *(each.sentence for each in over)):
        say(sentence)


def found_trials(
    typed: str, folder: Path | None, testing: str | None, averaging: str | None
) -> dict[Place, Trials]:
    """Return the trials of a folder, or of a method in it, by dataset and setting."""
    from evergraph.reports.runs import RESULT, collect, way_of
    from evergraph.reports.trials import trials_of

    where = Path(typed) if folder is None else folder
    if folder is None and not where.exists():
        said = f"{typed} must be a results folder, or a method with --in: there is no such folder"
        raise ResultsError(said)
    rows: list[Path] = []  # of a results book, if it is one
    if where.is_dir() and next(where.rglob(RESULT), None) is None:
        rows = sorted(where.glob("*/*/*.json"))
    found = ((path, _trials_of_row(path, testing, averaging)) for path in rows)
    every = [(path, trials) for path, trials in found if trials is not None] or [
        (run.folder, trials_of(run, way_of(run.result, testing, averaging)))
        for run in collect(where)
    ]
    holds, remedy = f"{typed} holds", "compare two of its methods with --in"
    if folder is not None:
        holds, remedy = f"{folder} holds", "give the folders of the two runs"
        names = {trials.name for _, trials in every}
        if typed not in names:
            raise UnknownNameError(f"method in {folder}", typed, names)
        every = [(source, trials) for source, trials in every if trials.name == typed]
    places: dict[Place, tuple[Path, Trials]] = {}
    for source, trials in every:
        place = (trials.dataset, trials.setting)
        if place in places:
            raise ResultsError(
                f"{holds} more than one run on {', '.join(place)}, {places[place][0]} and "
                f"{source}: {remedy}"
            )
        places[place] = (source, trials)
    return {place: trials for place, (_, trials) in sorted(places.items())}


def _trials_of_row(path: Path, testing: str | None, averaging: str | None) -> Trials | None:
    """Return the repeats of a row of the book; None if it records a failure."""
    from evergraph.core.targets import target_of
    from evergraph.reports.trials import Trials

    try:
        row = json.loads(path.read_text("utf-8"))
        if row.get("failure") is not None:
            return None
        seeds, values, facts = row["seeds"], row["values"], row.get("facts", {})
        known = {name: row[name] for name in ("dataset", "setting", "config")}
        label = row["label"]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        said = f"{path} is not a row of the book: {type(error).__name__}: {error}"
        raise ResultsError(said) from None
    target = target_of(facts.get("targets", {}).get("kind", "class"))
    way = testing or "local", averaging or target.main
    check_choice("testing", way[0], values)
    check_choice("averaging", way[1], values[way[0]])
    kept = row.get("tasks", {}).get(way[0], {}).get(way[1]) or []
    return Trials(
        name=label,
        **known,
        metric=target.measure,
        way=way,
        scores=dict(zip(seeds, values[way[0]][way[1]]["average_accuracy"], strict=True)),
        tasks={seed: each["final"] for seed, each in zip(seeds, kept, strict=False)},
        facts=facts,
    )
