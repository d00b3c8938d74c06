"""The frame of a page: one HTML file that needs no other, with sections and a menu."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from evergraph.reports.figures.picture import Picture

REFERENCE = re.compile(r'(href="#|url\(#)([^")]+)')
# Parts that only a separate SVG file needs; the page has them once.
DROPPED = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->"
    r'| xmlns(?::xlink)?="[^"]*"',
    re.DOTALL,
)
# The page loads nothing, and this policy makes the browser enforce it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class PageSection:
    """A section of the page: plain text above ``content``, which is HTML."""

    anchor: str
    heading: str
    lead: str
    content: str


def figures_html(pictures: Sequence[Picture], prefix: str, *, small: bool = False) -> str:
    """Return pictures side by side, as many as fit; empty if there are none.

    prefix: unique prefix for ids on the page.
    """
    if not pictures:
        return ""
    figures = "\n".join(
        f"<figure>{inline_svg(picture, f'{prefix}{place}')}</figure>"
        for place, picture in enumerate(pictures)
    )
    return f'<div class="figures{" small" if small else ""}">\n{figures}\n</div>'


def inline_svg(picture: Picture, prefix: str) -> str:
    """Return the bare ``<svg>``, as wide as its box, with prefixed ids."""
    text = DROPPED.sub("", picture.svg)
    box = re.search(r'<svg[^>]*(viewBox="[^"]*")', text)
    assert box is not None, "matplotlib gives every SVG a viewBox"
    root = f'<svg {box[1]} role="img" aria-label="{escape(picture.title)}">'
    text = re.sub(r"<svg[^>]*>", lambda _: root, text, count=1)
    used = {name for _, name in REFERENCE.findall(text)}
    ids = {name: f"{prefix}-{place}" for place, name in enumerate(sorted(used))}
    text = re.sub(  # an id that nothing refers to goes
        r' id="([^"]+)"', lambda f: f' id="{ids[f[1]]}"' if f[1] in ids else "", text
    )
    text = REFERENCE.sub(lambda found: found[1] + ids[found[2]], text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


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
        resources.files(__package__).joinpath(name).read_text("utf-8")
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
