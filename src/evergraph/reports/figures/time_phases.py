"""Where the time went, a stacked bar a run."""

from __future__ import annotations

from typing import Any

from evergraph.reports.figures.bars import key_above, name_rows, number_rows, rows_frame
from evergraph.reports.figures.picture import Picture, drawn
from evergraph.reports.runs import Group
from evergraph.reports.tables.costs import PHASES
from evergraph.reports.units import seconds_a_seed

COLOURS = dict(zip(PHASES, ("#E69F00", "#0072B2", "#56B4E9"), strict=True))


def time_phases(group: Group) -> Picture:
    """Draw the seconds of each phase, the mean over seeds, and write their sum."""

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
