"""Figures drawn without a display and without global state."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evergraph.core.extras import require

# Okabe and Ito's colours can be distinguished with every common colour blindness; their yellow is
# too pale for lines on white. Seven colours and eight markers: the first 56 looks all differ.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# Set on top of matplotlib's defaults, whatever the user's settings.
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.labelsize": 8.5,
    "axes.labelcolor": "#374151",
    "axes.edgecolor": "#9ca3af",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.7,
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "xtick.labelcolor": "#374151",
    "ytick.labelcolor": "#374151",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.markersize": 4.5,
    "text.parse_math": False,  # a label may hold a dollar sign
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "evergraph",
}
INK = "#374151"
DPI = 150


@dataclass(frozen=True)
class Look:
    """A colour and a marker."""

    colour: str
    marker: str


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Return a look for each name, the first 56 all different."""
    return {
        name: Look(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate(names)
    }


def percent_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis of accuracies: from 0 if any is low, else closer to them.

    R2 may be negative: the axis then starts lower, but not below -100 percent.

    >>> percent_limits([19.5, 96.5]), percent_limits([60.8, 98.3])
    ((-2.0, 102.0), (49.0, 101.0))
    """
    lowest = min(values)
    start = 0.0 if 0 <= lowest < 30 else max(10.0 * ((lowest - 5) // 10), -100.0)
    room = 0.02 * (100 - start)
    return start - room, 100 + room


def shortened(name: str, length: int = 24) -> str:
    """Return a name short enough for a figure.

    >>> shortened("tem (a/very/long/folder/of/runs)")
    'tem (a/very/…der/of/runs)'
    """
    if len(name) <= length:
        return name
    return f"{name[: length // 2]}…{name[-length // 2 :]}"


@dataclass(frozen=True)
class Picture:
    """A drawn figure in two formats; ``name`` is that of its files, without suffix."""

    name: str
    title: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class Frame:
    """The size of a figure and the margins around its axes, in inches."""

    width: float
    height: float
    left: float = 0.55
    right: float = 0.15
    top: float = 0.4
    bottom: float = 0.5

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the axes, as fractions of the figure."""
        width = (self.width - self.left - self.right) / self.width
        height = (self.height - self.top - self.bottom) / self.height
        return self.left / self.width, self.bottom / self.height, width, height


def drawn(
    name: str,
    title: str,
    frame: Frame,
    draw: Callable[[Any, Any], None],
    *,
    rows: int = 1,
    columns: int = 1,
) -> Picture:
    """Return the picture drawn by ``draw(figure, axes)``; the same input gives the same bytes."""
    require("matplotlib", extra="report", why=f"drawing {name}")
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(frame.width, frame.height))
        FigureCanvasAgg(figure)
        left, bottom, width, height = frame.box
        figure.subplots_adjust(left, bottom, left + width, bottom + height)
        draw(figure, figure.subplots(rows, columns))
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        return Picture(name, title, svg.getvalue(), png.getvalue())


def spread_apart(wanted: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Return positions as close to the wanted ones as a gap between any two allows.

    Least squares: without the gaps, it is isotonic regression. If they do not fit between ``low``
    and ``high``, the gap shrinks.
    """
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    pools: list[tuple[float, int]] = []
    for place, i in enumerate(order):
        pool = (wanted[i] - place * gap, 1)
        while pools and pools[-1][0] > pool[0]:
            (mean, count), (other, others) = pool, pools.pop()
            pool = ((mean * count + other * others) / (count + others), count + others)
        pools.append(pool)
    top = high - gap * (len(wanted) - 1)
    starts = [min(max(mean, low), top) for mean, count in pools for _ in range(count)]
    places = {i: start + n * gap for n, (i, start) in enumerate(zip(order, starts, strict=True))}
    return [places[i] for i in range(len(wanted))]
