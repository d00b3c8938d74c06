"""What accuracy costs: one line per family of runs, for bytes and for seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evergraph.reports.envelope import bytes_kept, envelope, families, learning_seconds
from evergraph.reports.figures.look import INK, Look, percent_limits, shortened
from evergraph.reports.figures.picture import Frame, Picture, drawn
from evergraph.reports.runs import Entry, Group
from evergraph.reports.units import size

TESTINGS = ("local", "global")

PANEL, KEY = 2.5, 0.16  # inches that a panel and a line of the legend take

Line = Literal["-", "--", ":", "none"]

Points = list[tuple[float, float]]

ROOM = 1.6  # between the outermost amount and the end of the axis: a tick of 1, 2, 5 always fits

MOST_TICKS = 7


@dataclass(frozen=True)
class Price:
    """What accuracy is paid with.

    Attributes:
        name: of the figure.
        label: under the axis.
        of: what a run costs.
        told: an amount as people write it.
        shown: the amounts that the axis shows at least.
    """

    name: str
    label: str
    of: Callable[[Entry], float]
    told: Callable[[float], str]
    shown: tuple[float, ...] = ()


BYTES = Price(
    "bytes",
    "kept between tasks",
    bytes_kept,
    lambda amount: size(round(amount)).replace(".0", ""),
    (1e5, 5e8),
)

SECONDS = Price(
    "seconds",
    "learning: embed and train, one seed",
    learning_seconds,
    lambda amount: f"{amount:,.10g} s",
)


def frontier(group: Group, looks: Mapping[str, Look], price: Price) -> Picture:
    """Draw AA over its price, on a log scale: a run a point, a family's best so far a line.

    A point is hollow where a cheaper run of its family is as good. Who pays nothing, or keeps all
    data, is a dotted line across: on a log scale it has no place. Single runs far below all
    families are named at the foot instead.
    """
    named = families(group)
    lines = _lines(named, looks, price)
    foot = 0.5 + KEY * math.ceil(len(named) / 2)
    frame = Frame(4.6, 2 * PANEL + foot, bottom=foot)

    def draw(figure: Any, panels: Any) -> None:
        figure.subplots_adjust(hspace=0.36)
        for axes, testing in zip(panels, TESTINGS, strict=True):
            axes.set_title(f"{group.title}, {testing}")
            axes.set(ylabel=f"average {group.metric} (%)", ylim=_height(named, testing))
            _scale(axes, price, [cost for e in group.entries if _has_place(cost := price.of(e))])
            for name, runs in named.items():
                _family(axes, _points(runs, price, testing), looks[name], lines[name])
            _name_below(axes, named, testing)
        panels[-1].set_xlabel(price.label)
        _key(figure, {name: (looks[name], lines[name]) for name in named})

    name = f"frontier-{price.name}-{group.slug}"
    return drawn(name, f"{group.title}, {price.name}", frame, draw, rows=2)


def _lines(
    named: Mapping[str, Sequence[Entry]], looks: Mapping[str, Look], price: Price
) -> dict[str, Line]:
    """Return how a family's line is drawn: dashed where an earlier one has the same colour."""
    met: set[str] = set()
    lines: dict[str, Line] = {}
    for name, runs in named.items():
        if len(runs) == 1:
            lines[name] = "none" if _has_place(price.of(runs[0])) else ":"
            continue
        lines[name] = "--" if looks[name].colour in met else "-"
        met.add(looks[name].colour)
    return lines


def _has_place(cost: float) -> bool:
    """Whether a cost has a place on a log scale."""
    return 0 < cost < math.inf


def _points(runs: Sequence[Entry], price: Price, testing: str) -> Points:
    return [(price.of(run), run.accuracy(testing)) for run in runs]


def _height(named: Mapping[str, Sequence[Entry]], testing: str) -> tuple[float, float]:
    """Return the ends of the axis: those of families, so that a floor does not flatten them."""
    several = [run for runs in named.values() if len(runs) > 1 for run in runs]
    return percent_limits([run.accuracy(testing) for run in several])


def _scale(axes: Any, price: Price, amounts: Sequence[float]) -> None:
    low, high = log_span(amounts, price.shown)
    ticks = log_ticks(low, high)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [price.told(tick) for tick in ticks])
    axes.minorticks_off()


def _family(axes: Any, points: Points, look: Look, line: Line) -> None:
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


def _name_below(axes: Any, named: Mapping[str, Sequence[Entry]], testing: str) -> None:
    floor = axes.get_ylim()[0]
    singles = [runs[0] for runs in named.values() if len(runs) == 1]
    low = [run for run in singles if run.accuracy(testing) < floor]
    text = ", ".join(f"{shortened(run.name)} {run.accuracy(testing):.1f}" for run in low)
    if low:
        place = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
        axes.text(0.99, 0.02, f"below: {text}", fontsize=7.5, color=INK, **place)


def _key(figure: Any, signs: Mapping[str, tuple[Look, Line]]) -> None:
    """Name the families at the foot, in two columns."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, markersize=5, linestyle=line)
        for look, line in signs.values()
    ]
    figure.legend(
        handles, [shortened(name, 28) for name in signs], loc="lower left",
        bbox_to_anchor=(figure.subplotpars.left - 0.02, 0), ncols=2, frameon=False, fontsize=8,
        borderaxespad=0.2, borderpad=0.2, labelspacing=0.3, columnspacing=1.4, handlelength=2.4,
    )  # fmt: skip


def log_span(amounts: Sequence[float], shown: Sequence[float] = ()) -> tuple[float, float]:
    """Return the ends of an axis with all amounts inside; zero is on no log scale.

    >>> log_span([0, 16, 100]), log_span([16], shown=[1, 1000])
    ((10.0, 160.0), (1.0, 1000.0))
    """
    paid = [amount for amount in amounts if amount > 0]
    ends = [*(end for a in paid for end in (a / ROOM, a * ROOM)), *map(float, shown)]
    return (min(ends), max(ends)) if ends else (1.0, 10.0)


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every decade in between, the decades alone where that is many.

    >>> log_ticks(3, 60), log_ticks(1e5, 5e8)
    ([5.0, 10.0, 20.0, 50.0], [100000.0, 1000000.0, 10000000.0, 100000000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside if len(inside) <= MOST_TICKS else [t for t in ticks[::3] if low <= t <= high]
