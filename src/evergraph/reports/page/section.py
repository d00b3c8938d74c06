"""A section of the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from evergraph.reports.figures import Picture


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
