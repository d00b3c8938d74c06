"""Who is ahead, at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from evergraph.reports.page.section import Section
from evergraph.reports.runs import Group


def leaders(groups: Sequence[Group]) -> Section:
    """Return a tile a group: the highest local and global AA."""
    tiles = "\n".join(_tile(group) for group in groups)
    lead = "The highest average accuracy of each dataset and setting, in percent."
    return Section("glance", "At a glance", lead, f'<div class="tiles">\n{tiles}\n</div>')


def _tile(group: Group) -> str:
    lines = []
    for testing in ("local", "global"):
        best = max(group.entries, key=lambda entry: entry.accuracy(testing))
        lines.append(
            f"<dt>{testing}</dt><dd>{escape(best.name)}</dd>"
            f'<dd class="value">{best.accuracy(testing):.1f}</dd>'
        )
    return f'<div class="tile"><h3>{escape(group.title)}</h3><dl>{"".join(lines)}</dl></div>'
