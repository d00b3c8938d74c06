"""What is kept against how well it serves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evergraph.reports.envelope import families, family_of
from evergraph.reports.figures.labels import Box, place_labels
from evergraph.reports.figures.look import INK, Look, percent_limits, shortened
from evergraph.reports.figures.picture import Frame, Picture, drawn
from evergraph.reports.groups import Group
from evergraph.reports.table import size

FONT = 7.5


def memory_accuracy(group: Group, looks: Mapping[str, Look], testing: str) -> Picture:
    """Draw AA over the bytes kept between tasks, on a log scale; who keeps nothing stands left.

    Runs of a family look alike, and the best of them is named.
    """
    kept = [entry.run.result["memory"]["bytes"] for entry in group.entries]
    accuracies = [entry.accuracy(testing) for entry in group.entries]
    nothing, places = _decades(kept)

    def draw(figure: Any, axes: Any) -> None:
        axes.set_title(f"{group.title}, {testing}")
        axes.set(xlabel="kept between tasks", ylabel="average accuracy (%)")
        axes.set_ylim(percent_limits(accuracies))
        _ticks(axes, nothing, places)
        for entry, x, y in zip(group.entries, places, accuracies, strict=True):
            look = looks[family_of(entry.name)]
            axes.plot([x], [y], look.marker, color=look.colour, markersize=6.5, clip_on=False)
        _name_points(axes, _names(group, testing), places, accuracies)

    name = f"memory_accuracy-{testing}-{group.slug}"
    return drawn(name, f"{group.title}, {testing}", Frame(4.6, 3.5), draw)


def _names(group: Group, testing: str) -> list[str]:
    """Return what is written beside each run: its family at the best run, else nothing."""
    kin = families(group).items()
    best = {max(runs, key=lambda run: run.accuracy(testing)).name: name for name, runs in kin}
    return [shortened(best.get(entry.name, "")) for entry in group.entries]


def _decades(kept: Sequence[int]) -> tuple[float, list[float]]:
    """Return where "nothing" stands and where each run does, in powers of ten.

    >>> _decades([0, 1000, 100_000])
    (2.0, [2.0, 3.0, 5.0])
    """
    lowest = min((math.log10(count) for count in kept if count), default=1.0)
    nothing = math.floor(lowest) - (1.0 if lowest == math.floor(lowest) else 0.5)
    return nothing, [math.log10(count) if count else nothing for count in kept]


def _ticks(axes: Any, nothing: float, places: Sequence[float]) -> None:
    span = max(places) - nothing + 0.5
    low, high = math.floor(nothing + 0.17 * span) + 1, math.ceil(max(places))  # off "nothing"
    decades = list(range(low, max(high, low) + 1))
    sizes = [size(10**decade).replace(".0", "") for decade in decades]
    axes.set_xticks([nothing, *decades], ["nothing", *sizes])
    axes.set_xlim(nothing - 0.13 * span, max(places) + 0.25 * span)
    axes.axvline(nothing + 0.25, color="#9ca3af", linewidth=0.7, linestyle=":")


def _name_points(axes: Any, names: Sequence[str], xs: Sequence[float], ys: Sequence[float]) -> None:
    """Write each name beside its point, with a lead where it had to stand further off."""
    scale = 72 / axes.figure.dpi
    points = [tuple(scale * axes.transData.transform(p)) for p in zip(xs, ys, strict=True)]
    area = axes.get_window_extent()
    room = Box(
        *(
            scale * v
            for v in ((area.x0 + area.x1) / 2, (area.y0 + area.y1) / 2, area.width, area.height)
        )
    )
    for (x, y), point, name, box in zip(
        zip(xs, ys, strict=True),
        points,
        names,
        place_labels(points, names, room, FONT),
        strict=True,
    ):
        if not name:
            continue
        offset = (box.x - point[0], box.y - point[1])
        nearest = min(points, key=box.distance)
        far = box.distance(point) > 10 or box.distance(nearest) < box.distance(point)
        lead = {"arrowstyle": "-", "color": "#9ca3af", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            name, (x, y), offset, textcoords="offset points", ha="center", va="center",
            fontsize=FONT, color=INK, arrowprops=lead if far else None,
        )  # fmt: skip
