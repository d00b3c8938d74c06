"""A section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from evergraph.reports.figures import Picture
from evergraph.reports.figures.inline_svg import inline_svg


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
