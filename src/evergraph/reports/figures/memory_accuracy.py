"""What is kept against how well it serves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evergraph.reports.envelope import bytes_kept, families, family_of
from evergraph.reports.figures.labels import Box, place_labels
from evergraph.reports.figures.look import INK, Look, percent_limits, shortened
from evergraph.reports.figures.picture import Frame, Picture, drawn
from evergraph.reports.runs import Group
from evergraph.reports.units import ALL, size

FONT = 7.5


def memory_accuracy(group: Group, looks: Mapping[str, Look], testing: str) -> Picture:
    """Draw AA over the bytes kept between tasks, on a log scale.

    Who keeps nothing stands at the left, who keeps all data at the right.

    Runs of a family look alike, and the best of them is named.
    """
    kept = [bytes_kept(entry) for entry in group.entries]
    accuracies = [entry.accuracy(testing) for entry in group.entries]
    nothing, places = _decades(kept)

    def draw(figure: Any, axes: Any) -> None:
        axes.set_title(f"{group.title}, {testing}")
        axes.set(xlabel="kept between tasks", ylabel=f"average {group.metric} (%)")
        axes.set_ylim(percent_limits(accuracies))
        _ticks(axes, nothing, places, everything=math.inf in kept)
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


def _decades(kept: Sequence[float]) -> tuple[float, list[float]]:
    """Return where "nothing" stands and where each run does, in powers of ten.

    >>> _decades([0, 1000, 100_000, math.inf])
    (2.0, [2.0, 3.0, 5.0, 6.5])
    """
    counted = [math.log10(count) for count in kept if 0 < count < math.inf]
    lowest = min(counted, default=1.0)
    nothing = math.floor(lowest) - (1.0 if lowest == math.floor(lowest) else 0.5)
    everything = math.ceil(max(counted, default=nothing)) + 1.5
    ends = {0: nothing, math.inf: everything}
    return nothing, [ends[n] if n in ends else math.log10(n) for n in kept]


def _ticks(axes: Any, nothing: float, places: Sequence[float], *, everything: bool) -> None:
    last = max(places)
    span = last - nothing + 0.5
    low = math.floor(nothing + 0.17 * span) + 1  # off "nothing"
    high = math.floor(last - 0.17 * span) if everything else max(math.ceil(last), low)
    decades = list(range(low, high + 1))
    ticks: dict[float, str] = {nothing: "nothing"}
    ticks |= {decade: size(10**decade).replace(".0", "") for decade in decades}
    axes.axvline(nothing + 0.25, color="#9ca3af", linewidth=0.7, linestyle=":")
    if everything:
        ticks[last] = ALL
        axes.axvline(last - 0.25, color="#9ca3af", linewidth=0.7, linestyle=":")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(nothing - 0.13 * span, last + 0.25 * span)


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
