"""The whole page, from its sections."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources

from evergraph.reports.page.section import Section, section_html
from evergraph.reports.runs import Group

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
