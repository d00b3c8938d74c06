"""Axes with a row a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.reports.figures.look import INK, shortened
from evergraph.reports.figures.picture import Frame
from evergraph.reports.runs import Entry

ROW = 0.2  # inches


def rows_frame(entries: Sequence[Entry]) -> Frame:
    """Return a frame with room for the names at the left and for a number at the right."""
    longest = max(len(shortened(entry.name)) for entry in entries)
    height = 1.08 + ROW * max(3, len(entries))
    return Frame(4.6, height, left=0.25 + 0.07 * longest, right=0.6, top=0.58)


def name_rows(axes: Any, entries: Sequence[Entry], title: str) -> None:
    """Name the rows, the first at the top."""
    axes.set_title(title, pad=24)
    axes.set_ylim(max(3, len(entries)) - 0.4, -0.6)
    axes.set_yticks(range(len(entries)), [shortened(entry.name) for entry in entries])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def number_rows(axes: Any, heading: str, texts: Sequence[str]) -> None:
    """Write a number at the right end of every row."""
    style = {"transform": axes.get_yaxis_transform(), "ha": "right", "fontsize": 8, "color": INK}
    x = 1 + 0.5 / (axes.get_position().width * axes.figure.get_figwidth())
    axes.text(x, -0.95, heading, va="bottom", **style)
    for place, text in enumerate(texts):
        axes.text(x, place, text, va="center_baseline", **style)


def key_above(axes: Any, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Explain the signs between title and axes."""
    axes.legend(
        handles, names, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names), frameon=False,
        borderaxespad=0.1, borderpad=0.2, handletextpad=0.4, columnspacing=1.2, fontsize=8,
    )  # fmt: skip
