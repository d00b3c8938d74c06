"""Local against global AA, a dumb-bell a run."""

from __future__ import annotations

from typing import Any

from evergraph.reports.figures.bars import key_above, name_rows, number_rows, rows_frame
from evergraph.reports.figures.look import percent_limits
from evergraph.reports.figures.picture import Picture, drawn
from evergraph.reports.runs import Group

LOCAL, GLOBAL = "#0072B2", "#E69F00"


def local_global(group: Group) -> Picture:
    """Draw both ends with their deviations, and write how much global testing costs."""

    def draw(figure: Any, axes: Any) -> None:
        name_rows(axes, group.entries, group.title)
        axes.set(xlabel=f"average {group.metric} after the last task (%)")
        ends = [[e.accuracy(way) for e in group.entries] for way in ("local", "global")]
        axes.set_xlim(percent_limits([*ends[0], *ends[1]]))
        rows = range(len(group.entries))
        axes.hlines(rows, *ends, color="#9ca3af", linewidth=2, zorder=1)
        handles = [
            _ends(axes, group, way, colour, marker)
            for way, colour, marker in (("global", GLOBAL, "s"), ("local", LOCAL, "o"))
        ]
        key_above(axes, handles[::-1], ["local", "global"])
        number_rows(
            axes,
            "change",
            [f"{b - a:+.1f}".replace("-0.0", "0.0") for a, b in zip(*ends, strict=True)],
        )

    return drawn(f"local_global-{group.slug}", group.title, rows_frame(group.entries), draw)


def _ends(axes: Any, group: Group, testing: str, colour: str, marker: str) -> Any:
    means = [entry.accuracy(testing) for entry in group.entries]
    spreads = [entry.run.main("average_accuracy", testing) for entry in group.entries]
    return axes.errorbar(
        means,
        range(len(means)),
        xerr=[100 * (spread["std"] or 0) for spread in spreads],
        fmt=marker,
        color=colour,
        markersize=5.5,
        elinewidth=1,
        clip_on=False,
    )
