"""Accuracy against memory and learning time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from evergraph.reports.figures import picture
from evergraph.reports.figures.picture import Frame, Look, Picture
from evergraph.reports.runs import Entry, Group, envelope, families, seconds_a_seed, size

PANEL, KEY = 2.5, 0.16  # height in inches of a panel and of a legend line
Line = Literal["-", "--", ":", "none"]
AXIS_MARGIN_FACTOR = (
    2.3  # factor from the outermost amount to the end of the axis: three ticks always fit
)
MOST_TICKS = 8


def _has_place(cost: float) -> bool:  # on a log scale
    return 0 < cost < inf


@dataclass(frozen=True)
class Price:
    """A cost of accuracy."""

    name: str  # in files
    label: str  # of the axis
    of: Callable[[Entry], float]  # the cost of a run
    told: Callable[[float], str]  # as text
    shown: tuple[float, ...] = ()  # amounts that the axis always covers


BYTES = Price(
    "bytes",
    "kept between tasks",
    lambda entry: inf if entry.run.keeps_everything else float(entry.run.result["memory"]["bytes"]),
    lambda amount: size(round(amount)).replace(".0", ""),
    (1e5, 5e8),
)
SECONDS = Price(
    "seconds",
    "learning: embed and train, one seed",
    lambda entry: sum(seconds_a_seed(entry.run, phase) for phase in ("embed", "train")),
    lambda amount: f"{amount:,.10g} s",
)


def frontier(group: Group, looks: Mapping[str, Look], price: Price) -> Picture:
    """Draw AA over its cost on a log scale: a point per run, a line for a family's best so far.

    A point is hollow if a cheaper run of its family is as good. Runs that cost nothing or keep all
    data have no position on a log scale and are dotted horizontal lines. If there are families,
    single runs far below them are listed at the bottom instead.
    """
    named = families(group)
    lines: dict[str, Line] = {}
    for name, runs in named.items():
        if len(runs) == 1:
            lines[name] = "none" if _has_place(price.of(runs[0])) else ":"
        else:  # dashed if an earlier family has the same colour
            met = [looks[other].colour for other in lines if len(named[other]) > 1]
            lines[name] = "--" if looks[name].colour in met else "-"
    foot = 0.5 + KEY * math.ceil(len(named) / 2)
    frame = Frame(4.6, 2 * PANEL + foot, bottom=foot)
    several = [run for runs in named.values() if len(runs) > 1 for run in runs] or group.entries
    singles = [runs[0] for runs in named.values() if len(runs) == 1]
    low, high = log_span([c for e in group.entries if _has_place(c := price.of(e))], price.shown)
    ticks = log_ticks(low, high)

    def draw(figure: Any, panels: Any) -> None:
        figure.subplots_adjust(hspace=0.36)
        for axes, testing in zip(panels, ("local", "global"), strict=True):
            axes.set_title(f"{group.title}, {testing}")
            # The height covers families only, so that a low single run does not flatten them.
            limits = picture.percent_limits([run.accuracy(testing) for run in several])
            axes.set(ylabel=f"average {group.metric} (%)", ylim=limits)
            axes.set_xscale("log")
            axes.set_xlim(low, high)
            axes.set_xticks(ticks, [price.told(tick) for tick in ticks])
            axes.minorticks_off()
            for name, runs in named.items():
                points = [(price.of(run), run.accuracy(testing)) for run in runs]
                _draw_family(axes, points, looks[name], lines[name])
            under = [run for run in singles if run.accuracy(testing) < axes.get_ylim()[0]]
            if under:
                told = (
                    f"{picture.shortened(run.name)} {run.accuracy(testing):.1f}" for run in under
                )
                corner = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
                text = f"below: {', '.join(told)}"
                axes.text(0.99, 0.02, text, fontsize=7.5, color=picture.INK, **corner)
        panels[-1].set_xlabel(price.label)
        from matplotlib.lines import Line2D

        handles = []
        for name in named:
            look = looks[name]
            marks: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 5}
            handles.append(Line2D([], [], linestyle=lines[name], **marks))
        figure.legend(  # of families, at the bottom, in two columns
            handles,
            [picture.shortened(name, 28) for name in named],
            loc="lower left",
            bbox_to_anchor=(figure.subplotpars.left - 0.02, 0),
            ncols=2,
            frameon=False,
            fontsize=8,
            borderaxespad=0.2,
            borderpad=0.2,
            labelspacing=0.3,
            columnspacing=1.4,
            handlelength=2.4,
        )

    name = f"frontier-{price.name}-{group.slug}"
    return picture.drawn(name, f"{group.title}, {price.name}", frame, draw, rows=2)


def _draw_family(axes: Any, points: Sequence[tuple[float, float]], look: Look, line: Line) -> None:
    for level in {value for cost, value in points if not _has_place(cost)}:
        axes.axhline(level, color=look.colour, linewidth=1.2, linestyle=":")
    paid = [point for point in points if _has_place(point[0])]
    best = envelope(paid)
    if len(paid) > 1:
        dearest = max(cost for cost, _ in paid), best[-1][1]
        axes.plot(*zip(*best, dearest, strict=True), color=look.colour, linestyle=line)
    for point in paid:
        face, order = (look.colour, 4) if point in best else ("white", 3)
        marker = {"marker": look.marker, "markersize": 5, "markerfacecolor": face}
        axes.plot(*point, color=look.colour, zorder=order, **marker)


def log_span(amounts: Sequence[float], shown: Sequence[float] = ()) -> tuple[float, float]:
    """Return the limits of an axis around all positive amounts."""
    paid = [amount for amount in amounts if amount > 0]
    ends = [
        *(end for a in paid for end in (a / AXIS_MARGIN_FACTOR, a * AXIS_MARGIN_FACTOR)),
        *map(float, shown),
    ]
    return (min(ends), max(ends)) if ends else (1.0, 10.0)


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every decade in between; more within one decade, fewer over many.

    >>> log_ticks(1.3, 7), log_ticks(0.8, 30)
    ([1.5, 2.0, 3.0, 5.0, 7.0], [1.0, 2.0, 5.0, 10.0, 20.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps: tuple[float, ...] = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside if len(inside) <= MOST_TICKS else [t for t in inside if f"{t:e}"[0] == "1"]
