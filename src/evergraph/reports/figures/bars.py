"""Bar charts: seconds by phase, and local beside global testing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.reports.figures.picture import INK, Frame, Picture, drawn, percent_limits, shortened
from evergraph.reports.runs import Entry, Group
from evergraph.reports.tables.costs import PHASES
from evergraph.reports.units import seconds_a_seed

ROW = 0.2  # inches


def rows_frame(entries: Sequence[Entry]) -> Frame:
    """Return a frame with space for names on the left and numbers on the right."""
    longest = max(len(shortened(entry.name)) for entry in entries)
    height = 1.08 + ROW * max(3, len(entries))
    return Frame(4.6, height, left=0.25 + 0.07 * longest, right=0.6, top=0.58)


def name_rows(axes: Any, entries: Sequence[Entry], title: str) -> None:
    """Label the rows, the first at the top."""
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
    """Put the legend between title and axes."""
    axes.legend(
        handles, names, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names), frameon=False,
        borderaxespad=0.1, borderpad=0.2, handletextpad=0.4, columnspacing=1.2, fontsize=8,
    )  # fmt: skip


COLOURS = dict(zip(PHASES, ("#E69F00", "#0072B2", "#56B4E9"), strict=True))


def time_phases(group: Group) -> Picture:
    """Draw the seconds of each phase, the mean over seeds, with their sum."""

    def draw(figure: Any, axes: Any) -> None:
        name_rows(axes, group.entries, group.title)
        axes.set_xlabel("seconds per seed")
        ends = [0.0] * len(group.entries)
        handles = []
        for phase, colour in COLOURS.items():
            spent = [seconds_a_seed(entry.run, phase) for entry in group.entries]
            bars = axes.barh(range(len(spent)), spent, 0.68, ends, color=colour)
            ends = [end + seconds for end, seconds in zip(ends, spent, strict=True)]
            handles.append(bars)
        axes.set_xlim(0, max(ends) * 1.02 or 1)
        key_above(axes, handles, PHASES)
        number_rows(axes, "sum", [f"{end:.1f}" for end in ends])

    return drawn(f"time_phases-{group.slug}", group.title, rows_frame(group.entries), draw)


LOCAL, GLOBAL = "#0072B2", "#E69F00"


def local_global(group: Group) -> Picture:
    """Draw local and global AA with their deviations, and the cost of global testing."""

    def draw(figure: Any, axes: Any) -> None:
        name_rows(axes, group.entries, group.title)
        axes.set(xlabel=f"average {group.metric} after the last task (%)")
        ends = [[e.accuracy(way) for e in group.entries] for way in ("local", "global")]
        axes.set_xlim(percent_limits([*ends[0], *ends[1]]))
        rows = range(len(group.entries))
        axes.hlines(rows, *ends, color="#9ca3af", linewidth=2, zorder=1)
        handles = {}
        for way, colour, marker in (("global", GLOBAL, "s"), ("local", LOCAL, "o")):
            spreads = [entry.run.main("average_accuracy", way) for entry in group.entries]
            handles[way] = axes.errorbar(
                [100 * spread["mean"] for spread in spreads], rows,
                xerr=[100 * (spread["std"] or 0) for spread in spreads],
                fmt=marker, color=colour, markersize=5.5, elinewidth=1, clip_on=False,
            )  # fmt: skip
        key_above(axes, [handles["local"], handles["global"]], ["local", "global"])
        changes = [f"{b - a:+.1f}".replace("-0.0", "0.0") for a, b in zip(*ends, strict=True)]
        number_rows(axes, "change", changes)

    return drawn(f"local_global-{group.slug}", group.title, rows_frame(group.entries), draw)
