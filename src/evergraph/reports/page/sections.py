"""What stands on the page, in its order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

import tomli_w

from evergraph.evaluation.statistics import LEAST_DATASETS
from evergraph.reports.figures.picture import Picture
from evergraph.reports.gallery import Gallery
from evergraph.reports.runs import Entry, Group, metric_of
from evergraph.reports.tables.record import Table, html_table
from evergraph.reports.units import seeds_of


@dataclass(frozen=True)
class Section:
    """A section.

    Attributes:
        anchor: its address in the page.
        heading, lead: plain text above it.
        content: HTML.
    """

    anchor: str
    heading: str
    lead: str
    content: str


def section_html(section: Section) -> str:
    """Return the section as HTML."""
    lead = f'<p class="soft">{escape(section.lead)}</p>\n' if section.lead else ""
    return (
        f'<section id="{section.anchor}">\n<h2>{escape(section.heading)}</h2>\n'
        f"{lead}{section.content}\n</section>"
    )


def figures_html(pictures: Sequence[Picture], prefix: str, *, small: bool = False) -> str:
    """Return pictures side by side, as many as fit, nothing where there are none.

    prefix: theirs alone on the page.
    """
    if not pictures:
        return ""
    figures = "\n".join(
        f"<figure>{inline_svg(picture, f'{prefix}{place}')}</figure>"
        for place, picture in enumerate(pictures)
    )
    return f'<div class="figures{" small" if small else ""}">\n{figures}\n</div>'


REFERENCE = re.compile(r'(href="#|url\(#)([^")]+)')
# What only a file of its own needs; the page says the same once, for all.
DROPPED = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->"
    r'| xmlns(?::xlink)?="[^"]*"',
    re.DOTALL,
)


def inline_svg(picture: Picture, prefix: str) -> str:
    """Return the ``<svg>`` alone, as wide as its box, its ids beginning with its own prefix."""
    text = DROPPED.sub("", picture.svg)
    text = re.sub(r"(<svg)([^>]*)(>)", lambda found: _root(found, picture), text, count=1)
    used = {name for _, name in REFERENCE.findall(text)}
    ids = {name: f"{prefix}-{place}" for place, name in enumerate(sorted(used))}
    text = re.sub(r' id="([^"]+)"', lambda found: _id(ids.get(found[1])), text)
    text = REFERENCE.sub(lambda found: found[1] + ids[found[2]], text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _root(found: re.Match[str], picture: Picture) -> str:
    box = re.search(r'viewBox="[^"]*"', found[2])
    assert box is not None, "matplotlib gives every SVG a viewBox"
    return f'<svg {box[0]} role="img" aria-label="{escape(picture.title)}">'


def _id(name: str | None) -> str:
    return "" if name is None else f' id="{name}"'


# Nothing is fetched, whatever stands in the page: the browser is told so too.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(title: str, groups: Sequence[Group], sections: Sequence[Section]) -> str:
    """Return the page as HTML that needs no other file."""
    links = "".join(f'<li><a href="#{s.anchor}">{escape(s.heading)}</a></li>' for s in sections)
    body = "\n".join(section_html(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · evergraph report</title>
<link rel="icon" href="data:,">
<style>
{_part("report.css")}</style>
</head>
<body>
<div class="layout">
<header>
<p class="eyebrow">evergraph report</p>
<h1>{escape(title)}</h1>
<p class="soft">{escape(counted(groups))}</p>
</header>
<div class="columns">
<nav aria-label="Contents"><h2>Contents</h2><ol>{links}</ol></nav>
<main>
{body}
<footer>Written by <code>evergraph report</code>.</footer>
</main>
</div>
</div>
<script>
{_part("report.js")}</script>
</body>
</html>
"""


def counted(groups: Sequence[Group]) -> str:
    """Return what the page is about in one line."""
    runs = [entry.run for group in groups for entry in group.entries]
    seeds = sorted({len(run.result["accuracy_matrix"]) for run in runs})
    repeats = "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))  # noqa: RUF001
    counts = (
        (str(len(runs)), len(runs), "run"),
        (str(len({run.method for run in runs})), len({run.method for run in runs}), "method"),
        (str(len({run.dataset for run in runs})), len({run.dataset for run in runs}), "dataset"),
        (str(len({run.setting for run in runs})), len({run.setting for run in runs}), "setting"),
        (repeats, seeds[-1], "seed"),
    )
    return " · ".join(f"{text} {name}{'' if n == 1 else 's'}" for text, n, name in counts)


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


LEAD = (
    "Each run learned a graph as a stream of tasks, one after another; every task brings new "
    "classes. After each task the run was tested on all tasks met so far. A method is good if it "
    "learns the new without forgetting the old."
)

TERMS = {
    "AA, average accuracy": "The mean accuracy over all tasks once the last one is learned. Higher "
    "is better.",
    "AF, average forgetting": "How much accuracy on a task changed from just after it was learned "
    "to the end, on average. Negative means forgotten; nearer to 0, or above, is better.",
    "AAA, anytime accuracy": "The mean of AA over all tests, not the last one only: how good a "
    "run was along the way.",
    "ECE, expected calibration error": "How far the confidence of answers is from their accuracy. "
    "0 means that answers given with 80 % confidence are right in 80 of 100 cases.",
    "AUROC of rejection": "How often a node of a class still to come looks more novel than a node "
    "of a class already learned. 50 % is guessing.",
    "FWT, forward transfer": "Accuracy on nodes of the next task whose class is known, before that "
    "task is learned, less that of guessing. Where every task brings new classes only, there is "
    "none.",
    "local": "A test node is seen inside the subgraph of its own task, as in the paper. This gives "
    "away which task it belongs to.",
    "global": "A test node is seen inside the graph of everything met so far, as it would be in "
    "use.",
    "class-il": "The run chooses between all classes met so far.",
    "task-il": "The run is told the task and chooses between the classes of that task only.",
    "balanced": "Every class counts the same, however many nodes it has. All accuracies here are "
    "balanced, in percent, the mean over seeds, ± their standard deviation where there are "
    "several.",
    "memory": "What a run keeps between tasks. Methods that go over all earlier data again, such "
    "as joint, keep all data.",
    "seconds per seed": "The mean over the seeds of a run: with more seeds it does not grow.",
}


OF_TARGETS = {
    "micro F1": "Twice the labels rightly given over all labels given and all that are there, of "
    "all nodes together. It stands where nodes have several labels, in the place of accuracy: AA "
    "and AF are of it.",
    "R2": "The share of a number's variance that answers explain: 100 is without fault, 0 is as "
    "good as the mean, and below is worse. It stands where nodes have numbers to predict, in the "
    "place of accuracy: AA and AF are of it.",
}


# Sections in their order, with what is said above each; one without content is left out.
LEADS = {
    "glance": (
        "At a glance",
        "The highest average {metric} of each dataset and setting, in percent.",
    ),
    "headline": (
        "By protocol",
        "The one number of each run that its protocol's paper reports; all others follow below.",
    ),
    "summary": (
        "Summary",
        "All runs. Click a heading to sort by it, once more to turn the order round.",
    ),
    "differences": (
        "Which differences hold",
        "What is more than chance: a method is called better or worse only where tests show it.",
    ),
    "curves": (
        "Learning curves",
        "Average {metric} over the tasks learned so far: local as full lines, global dashed, the "
        "local end value beside each name.",
    ),
    "local-global": (
        "Local against global",
        "The price of testing in the whole graph instead of inside each task's own subgraph. Thin "
        "lines are standard deviations over seeds, where there are several.",
    ),
    "frontier": (
        "Accuracy against cost",
        "One line per family of runs: the best accuracy so far, over the bytes kept and over the "
        "seconds of learning, on log scales; up and to the left is better. A hollow point is no "
        "better than a cheaper one of its family. Dotted lines cost nothing, or keep all data.",
    ),
    "memory-accuracy": (
        "Memory against accuracy",
        "Bytes kept between tasks, on a log scale, and the accuracy they buy: up and to the left "
        "is better.",
    ),
    "beyond": ("Beyond accuracy", "Along the way, how sure, what is new, what carries over."),
    "budgets": ("At equal cost", "The best of each method's runs within the same budget."),
    "memory": ("Memory", "What the memory is made of."),
    "time": (
        "Time",
        "Where the time went. Runs that shared a machine slowed each other down.",
    ),
    "matrices": (
        "Accuracy matrices",
        "{Metric} on each task (across) after learning each task (down), in percent, the mean over "
        "seeds. A column that darkens on its way down is a task being forgotten.",
    ),
}


def sections_of(
    groups: Sequence[Group], tables: Mapping[str, Table], gallery: Gallery
) -> list[Section]:
    """Return all sections; the first ones are what most readers came for."""
    metric = metric_of(entry.run for group in groups for entry in group.entries)
    shown = {name: html_table(table) for name, table in tables.items()}
    tiles = "\n".join(_tile(group) for group in groups)
    matrices = [
        f"<h3>{escape(group.title)}</h3>\n{figures_html(pictures, f'a{place}-', small=True)}"
        for place, (group, pictures) in enumerate(zip(groups, gallery.matrices, strict=True))
    ]
    content = shown | {
        "glance": f'<div class="tiles">\n{tiles}\n</div>',
        "differences": _differences(groups, shown, gallery),
        "curves": figures_html(gallery.curves, "c"),
        "local-global": figures_html(gallery.local_global, "l"),
        "frontier": figures_html(gallery.frontier, "f"),
        "memory-accuracy": figures_html(gallery.memory, "m"),
        "time": f"{figures_html(gallery.time, 't')}\n{shown['time']}",
        "matrices": "\n".join(matrices),
    }
    called = {"metric": metric, "Metric": f"{metric[0].upper()}{metric[1:]}"}
    made_with = f"{shown['versions']}\n<h3>Machine</h3>\n{shown['machine']}"
    return [
        *(
            Section(name, heading, lead.format(**called), content[name])
            for name, (heading, lead) in LEADS.items()
            if content.get(name)
        ),
        terms(metric),
        _configurations(groups),
        Section("versions", "Versions and machine", "", made_with),
    ]


def _tile(group: Group) -> str:
    """Return the highest local and global AA of a group."""
    lines = []
    for testing in ("local", "global"):
        best = max(group.entries, key=lambda entry: entry.accuracy(testing))
        lines.append(
            f"<dt>{testing}</dt><dd>{escape(best.name)}</dd>"
            f'<dd class="value">{best.accuracy(testing):.1f}</dd>'
        )
    return f'<div class="tile"><h3>{escape(group.title)}</h3><dl>{"".join(lines)}</dl></div>'


def _differences(groups: Sequence[Group], shown: Mapping[str, str], gallery: Gallery) -> str:
    """Return what may be claimed; nothing where no run has another one beside it."""
    if "differences" not in shown:
        return ""
    parts = [f"<p>{escape(text)}</p>" for text in _shortages(groups, ranked="ranks" in shown)]
    parts.append(shown["differences"])
    if "ranks" in shown:
        parts += ["<h3>Over all datasets</h3>", figures_html(gallery.ranks, "r"), shown["ranks"]]
    return "\n".join(parts)


def _shortages(groups: Sequence[Group], *, ranked: bool) -> list[str]:
    """Return what there is not enough of, a sentence each."""
    runs = [entry.run for group in groups for entry in group.entries]
    told = []
    if single := sum(seeds_of(run) < 2 for run in runs):
        told.append(
            f"Not enough seeds: {single} of {len(runs)} runs have a single one, which shows no "
            "spread; at least 2 are needed, and 5 tell more."
        )
    if not ranked:
        most = max(Counter(group.setting for group in groups).values())
        told.append(
            f"Not enough datasets to rank methods over them: {LEAST_DATASETS} of one setting are "
            f"needed on which the same methods were run, and here are {most}."
        )
    return told


TOLD = "Everything a run was told, as TOML: saved to a file, evergraph run --preset repeats it."


def _configurations(groups: Sequence[Group]) -> Section:
    """Return a fold a group that holds a fold a run."""
    folds = "\n".join(
        f'<details><summary>{escape(group.title)}</summary><div class="inside">\n'
        + "\n".join(_fold(entry) for entry in group.entries)
        + "\n</div></details>"
        for group in groups
    )
    return Section("configurations", "Configurations", TOLD, folds)


def _fold(entry: Entry) -> str:
    text = tomli_w.dumps(_said(entry.run.result["config"]))
    return (
        f"<details><summary>{escape(entry.name)}</summary>"
        f"<pre><code>{escape(text)}</code></pre></details>"
    )


def _said(value: Any) -> Any:
    """Return a configuration without what was left open, which TOML cannot say.

    >>> _said({"a": None, "b": {"c": 1, "d": None}})
    {'b': {'c': 1}}
    """
    if isinstance(value, dict):
        return {name: _said(part) for name, part in value.items() if part is not None}
    return value


def terms(metric: str = "accuracy") -> Section:
    """Return the definitions, folded away; metric: what runs were measured by."""
    further = {name: text for name, text in OF_TARGETS.items() if name in metric}
    told = (TERMS | further).items()
    items = "\n".join(f"<div><dt>{term}</dt><dd>{text}</dd></div>" for term, text in told)
    fold = (
        '<details class="definitions"><summary>What the words and numbers mean</summary>\n'
        f'<dl class="terms">\n{items}\n</dl></details>'
    )
    return Section("terms", "How to read this page", LEAD, fold)
