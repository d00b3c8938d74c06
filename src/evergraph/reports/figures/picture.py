"""Figures drawn without a display and without global state."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
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


DPI = 150


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
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return Picture(name, title, svg.getvalue(), _png(figure))


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
    return content.getvalue()


Point = tuple[float, float]
LETTER, LINE = 0.56, 1.25  # width and height of a letter, in font sizes


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


@dataclass(frozen=True)
class Box:
    """A rectangle around a centre."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        """Return the area shared by two rectangles."""
        across = (self.width + other.width) / 2 - abs(self.x - other.x)
        along = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(0.0, across) * max(0.0, along)

    def distance(self, point: Point) -> float:
        """Return the distance of a point to the nearest edge, plus a little off the centre."""
        across, along = abs(self.x - point[0]), abs(self.y - point[1])
        gap = math.hypot(max(0.0, across - self.width / 2), max(0.0, along - self.height / 2))
        return gap + 0.1 * math.hypot(across, along)

    def outside(self, room: Box) -> float:
        """Return how far the rectangle extends beyond another."""
        across = abs(self.x - room.x) - (room.width - self.width) / 2
        along = abs(self.y - room.y) - (room.height - self.height) / 2
        return max(0.0, across) + max(0.0, along)


def place_labels(
    points: Sequence[Point], texts: Sequence[str], room: Box, size: float
) -> list[Box]:
    """Return a rectangle for each label near its point, away from other points and labels.

    All in points. Greedy, in the given order: each label takes the cheapest position.
    """
    dots = [Box(x, y, 1.2 * size, 1.2 * size) for x, y in points]
    turns = [math.pi * eighth / 8 for eighth in range(16)]
    placed: list[Box] = []
    for (x, y), text in zip(points, texts, strict=True):
        width, height = LETTER * size * len(text), LINE * size
        around = [  # near ones first: of equal costs the first is taken
            Box(
                x + math.cos(turn) * (distance + width / 2),
                y + math.sin(turn) * (distance + height / 2),
                width,
                height,
            )
            for distance, turn in product((7, 10, 14, 20, 28, 38, 50, 65, 80), turns)
        ]
        costs = [
            2 * sum(map(box.overlap, dots))
            + 3 * sum(map(box.overlap, placed))
            + 50 * box.outside(room)
            + 0.3 * math.hypot(box.x - x - math.copysign(width / 2, box.x - x), box.y - y)
            for box in around
        ]
        placed.append(around[costs.index(min(costs))])
    return placed
