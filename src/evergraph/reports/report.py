"""The files that ``evergraph report`` writes, and pages that need no other file.

DIR/report.html                    one page with sections and a menu
DIR/report/tables/NAME.csv|md|tex  its tables
DIR/report/figures/NAME.png|svg    its figures
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any

import tomli_w

from evergraph.core.errors import UnknownNameError
from evergraph.core.packages import require
from evergraph.core.safe_files import results_written, written_aside
from evergraph.evaluation.statistics import LEAST_DATASETS
from evergraph.reports.figures import (
    Picture,
    accuracy_matrix,
    critical_difference,
    learning_curves,
    looks_of,
)
from evergraph.reports.run_tables import (
    beyond_table,
    costs_table,
    differences_table,
    headline_table,
    ranks_table,
    summary_table,
)
from evergraph.reports.runs import Finished, Group, grouped, metric_of, names_of, runs_of, seeds_of
from evergraph.reports.tables import Table, csv_text, html_table, latex, markdown

PAGE, FOLDER = "report.html", "report"
FORMATS = {"csv": csv_text, "md": markdown, "tex": latex}


def write_report(runs: Sequence[Finished], folder: Path, *, against: str | None = None) -> Path:
    """Write the report of runs collected in a folder into it, and return the path of the page.

    The same runs give the same bytes. Tables and figures of an earlier report are removed.
    against: the run that others are compared with, by its name in the report; by default the best.
    """
    require("matplotlib", extra="report", why="a report")
    groups = grouped(runs, folder)
    if against is not None and against not in names_of(groups):
        raise UnknownNameError("run to compare with", against, names_of(groups))
    tables, figures = tables_of(groups, against), gallery(groups)
    title = folder.resolve().name or "runs"
    sections = sections_of(groups, tables, figures)
    text = page(title, counted(groups), sections, command="evergraph report")
    files = {
        f"tables/{table.name}.{ending}": form(table).encode()
        for table in tables.values()
        for ending, form in FORMATS.items()
    }
    for picture in chain.from_iterable(figures.values()):
        files[f"figures/{picture.name}.png"] = picture.png
        files[f"figures/{picture.name}.svg"] = picture.svg.encode()
    with results_written(folder / FOLDER):
        for name, content in files.items():
            path = folder / FOLDER / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for pattern in (
            *(f"tables/*.{ending}" for ending in FORMATS),
            "figures/*.png",
            "figures/*.svg",
        ):
            for path in (folder / FOLDER).glob(pattern):
                if path.relative_to(folder / FOLDER).as_posix() not in files:
                    path.unlink()
    return write_page(folder / PAGE, text)


def tables_of(groups: Sequence[Group], against: str | None = None) -> dict[str, Table]:
    """Return every table with content by name; against: see ``write_report``."""
    tables = [headline_table(groups), summary_table(groups)]
    if any(len(group.entries) > 1 for group in groups):  # else there is nothing to compare
        tables += [differences_table(groups, against), ranks_table(groups)]
    tables += [beyond_table(groups), costs_table(groups)]
    return {table.name: table for table in tables if table is not None}


def gallery(groups: Sequence[Group]) -> dict[str, list[Picture]]:
    """Draw all figures, by section of the page; a method has the same look in all of them.

    Ranks are drawn for each setting with several datasets and each way of testing.
    """
    looks = looks_of(names_of(groups))
    pictures: dict[str, list[Picture]] = defaultdict(list)
    for group in groups:
        pictures["curves"].append(learning_curves(group, looks))
        pictures["matrices"] += [accuracy_matrix(group, entry) for entry in group.entries]
    if any(len(group.entries) > 1 for group in groups):  # else there is nothing to compare
        from evergraph.reports.comparing import standings

        pictures["ranks"] = list(map(critical_difference, standings(groups)))
    return pictures


# The page loads nothing, and this policy makes the browser enforce it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class PageSection:
    """A section of the page: plain text above ``content``, which is HTML."""

    anchor: str
    heading: str
    lead: str
    content: str


def figures_html(pictures: Sequence[Picture], *, small: bool = False) -> str:
    """Return pictures side by side, as many as fit; empty if there are none."""
    if not pictures:
        return ""
    figures = "\n".join(
        f'<figure><img alt="{escape(picture.title)}" src="data:image/svg+xml;base64,'
        f'{b64encode(picture.svg.encode()).decode()}"></figure>'
        for picture in pictures
    )
    return f'<div class="figures{" small" if small else ""}">\n{figures}\n</div>'


def write_page(path: Path, text: str) -> Path:
    """Write a page, all or nothing, and return its path."""
    with results_written(path), written_aside(path) as file:
        file.write(text.encode())
    return path


def page(title: str, about: str, sections: Sequence[PageSection], *, command: str) -> str:
    """Return a page as self-contained HTML; command: that writes it."""
    links = "".join(f'<li><a href="#{s.anchor}">{escape(s.heading)}</a></li>' for s in sections)
    body = "\n".join(
        f'<section id="{s.anchor}">\n<h2>{escape(s.heading)}</h2>\n'
        + (f'<p class="soft">{escape(s.lead)}</p>\n' if s.lead else "")
        + f"{s.content}\n</section>"
        for s in sections
    )
    style, script = (
        resources.files(__package__).joinpath("page", name).read_text("utf-8")
        for name in ("report.css", "report.js")
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · {command}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<div class="layout">
<header>
<p class="eyebrow">{command}</p>
<h1>{escape(title)}</h1>
<p class="soft">{escape(about)}</p>
</header>
<div class="columns">
<nav aria-label="Contents"><h2>Contents</h2><ol>{links}</ol></nav>
<main>
{body}
<footer>Written by <code>{command}</code>.</footer>
</main>
</div>
</div>
<script>
{script}</script>
</body>
</html>
"""


LEAD = (
    "Each run learned a graph as a stream of tasks, one after another; every task brings new "
    "classes. After each task the run was tested on all tasks so far. A good method learns new "
    "tasks without forgetting old ones."
)
TERMS = {
    "AA, average accuracy": "The mean accuracy over all tasks after the last one is learned. "
    "Higher is better.",
    "AF, average forgetting": "The mean change in a task's accuracy from just after it was learned "
    "to the end. Negative values mean forgetting; higher is better.",
    "AAA, anytime accuracy": "The mean of AA over all tests, not only the last one: how good a "
    "run was along the way.",
    "ECE, expected calibration error": "The gap between the confidence and the accuracy of "
    "predictions. 0 means that predictions with 80 % confidence are right in 80 of 100 cases.",
    "AUROC of rejection": "How often a node of a future class looks more novel than a node of a "
    "class already learned. 50 % is chance.",
    "FWT, forward transfer": "Accuracy on nodes of the next task whose class is already known, "
    "before that task is learned, minus that of guessing. It is not defined if every task brings "
    "only new classes.",
    "local": "A test node is seen inside the subgraph of its own task, as in the paper. This "
    "reveals its task.",
    "global": "A test node is seen inside the graph of all tasks so far, as it would be in "
    "practice.",
    "class-il": "The run chooses among all classes so far.",
    "task-il": "The run knows the task and chooses only among the classes of that task.",
    "balanced": "Every class has the same weight, however many nodes it has. All accuracies here "
    "are balanced, in percent, the mean over seeds, ± their standard deviation if there are "
    "several.",
    "memory": "What a run keeps between tasks. Methods that use all earlier data again, such "
    "as joint, keep all data.",
    "seconds per seed": "Embedding, training and testing, without loading; the mean over the seeds "
    "of a run, so it does not grow with their number.",
}
OF_TARGETS = {
    "micro F1": "Twice the number of correct labels, divided by the number of predicted labels "
    "plus the number of true labels, over all nodes. It replaces accuracy if nodes have several "
    "labels; AA and AF are computed from it.",
    "R2": "The share of a target's variance that predictions explain: 100 is perfect, 0 is as good "
    "as predicting the mean, and below is worse. It replaces accuracy if the targets are numbers; "
    "AA and AF are computed from it.",
}
# Sections in order, with their introductions; one without content is left out.
LEADS = {
    "headline": (
        "By protocol",
        "The number of each run that its protocol's paper reports; all others follow below.",
    ),
    "summary": (
        "Summary",
        "All runs. Click a heading to sort by it; click again to reverse the order.",
    ),
    "differences": (
        "Which differences hold",
        "A method is called better or worse only if a test shows more than chance.",
    ),
    "curves": (
        "Learning curves",
        "Average {metric} over the tasks learned so far: local as solid lines, global as dashed "
        "lines, with the final local value beside each name.",
    ),
    "beyond": (
        "Beyond accuracy",
        "Anytime accuracy, calibration, detection of new classes, and forward transfer.",
    ),
    "costs": (
        "Costs",
        "What a run keeps, and its seconds by phase. Runs that shared a machine slowed each other "
        "down.",
    ),
    "matrices": (
        "Accuracy matrices",
        "{Metric} on each task (across) after learning each task (down), in percent, the mean over "
        "seeds. A column that darkens downwards is a task being forgotten.",
    ),
}


def counted(groups: Sequence[Group]) -> str:
    """Return a one-line summary of the runs."""
    runs = runs_of(groups)
    counts = {"run": [len(runs)]}
    for name in ("method", "dataset", "setting"):
        counts[name] = [len({getattr(run, name) for run in runs})]
    seeds = sorted({seeds_of(run) for run in runs})
    counts["seed"] = list(dict.fromkeys((seeds[0], seeds[-1])))  # the fewest and the most
    return " · ".join(
        f"{'–'.join(map(str, count))} {name}{'' if count[-1] == 1 else 's'}"  # noqa: RUF001
        for name, count in counts.items()
    )


def sections_of(
    groups: Sequence[Group], tables: Mapping[str, Table], gallery: Mapping[str, Sequence[Picture]]
) -> list[PageSection]:
    """Return all sections, the most important first."""
    metric = metric_of(runs_of(groups))
    tables_html = {name: html_table(table) for name, table in tables.items()}
    pictures = iter(gallery.get("matrices", ()))  # of all runs, group by group
    matrices = []
    for group in groups:
        figures = figures_html(list(islice(pictures, len(group.entries))), small=True)
        matrices.append(f"<h3>{escape(group.title)}</h3>\n{figures}")
    diagrams = figures_html(gallery.get("ranks", ()))
    content = tables_html | {
        "differences": _differences(groups, tables_html, diagrams),
        "curves": figures_html(gallery.get("curves", ())),
        "matrices": "\n".join(matrices),
    }
    words = {"metric": metric, "Metric": f"{metric[0].upper()}{metric[1:]}"}
    return [
        *(
            PageSection(name, heading, lead.format(**words), content[name])
            for name, (heading, lead) in LEADS.items()
            if content.get(name)
        ),
        terms(metric),
        _configurations(groups),
    ]


def _differences(groups: Sequence[Group], tables_html: Mapping[str, str], diagrams: str) -> str:
    """Return the section on differences, and what is missing for a test."""
    if "differences" not in tables_html:
        return ""
    runs = runs_of(groups)
    missing = []
    if single := sum(seeds_of(run) < 2 for run in runs):
        missing.append(
            f"Not enough seeds: {single} of {len(runs)} runs have a single one, which shows no "
            "spread; at least 2 are needed, and 5 are better."
        )
    if "ranks" not in tables_html:
        most = max(Counter(group.setting for group in groups).values())
        missing.append(
            f"Not enough datasets to rank methods: {LEAST_DATASETS} of one setting are needed on "
            f"which the same methods were run, and there are {most}."
        )
    parts = [*(f"<p>{escape(text)}</p>" for text in missing), tables_html["differences"]]
    if "ranks" in tables_html:
        parts += ["<h3>Over all datasets</h3>", diagrams, tables_html["ranks"]]
    return "\n".join(parts)


def _configurations(groups: Sequence[Group]) -> PageSection:

    def without_none(value: Any) -> Any:  # which TOML cannot express
        if isinstance(value, dict):
            return {name: without_none(part) for name, part in value.items() if part is not None}
        return value

    details = []
    for group in groups:
        runs = "\n".join(
            f"<details><summary>{escape(entry.name)}</summary><pre><code>"
            f"{escape(tomli_w.dumps(without_none(entry.run.result['config'])))}</code></pre>"
            "</details>"
            for entry in group.entries
        )
        details.append(
            f'<details><summary>{escape(group.title)}</summary><div class="inside">\n{runs}\n'
            "</div></details>"
        )
    lead = "The full configuration of each run as TOML; evergraph run --preset FILE repeats it."
    return PageSection("configurations", "Configurations", lead, "\n".join(details))


def terms(metric: str = "accuracy") -> PageSection:
    """Return the definitions, folded; metric: the metric of the runs."""
    definitions = TERMS | {name: text for name, text in OF_TARGETS.items() if name in metric}
    items = "\n".join(
        f"<div><dt>{term}</dt><dd>{text}</dd></div>" for term, text in definitions.items()
    )
    details = (
        '<details class="definitions"><summary>What the words and numbers mean</summary>\n'
        f'<dl class="terms">\n{items}\n</dl></details>'
    )
    return PageSection("terms", "How to read this page", LEAD, details)
