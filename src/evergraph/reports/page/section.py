"""A section of the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from evergraph.reports.figures.picture import Picture
from evergraph.reports.runs import Group


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
    """Return pictures side by side, as many as fit; ``prefix`` is theirs alone on the page."""
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
