"""Labels that keep out of each other's way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

Point = tuple[float, float]
LETTER, LINE = 0.56, 1.25  # width and height of a letter, in font sizes


def spread_apart(wanted: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Return places as near to the wanted ones as a gap between any two allows.

    Least squares: with the gaps taken out, it is isotonic regression. Where all do not fit between
    ``low`` and ``high``, they stand closer.

    >>> spread_apart([5.0, 5.0, 9.0], gap=2.0, low=0.0, high=10.0)
    [4.0, 6.0, 9.0]
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
        """Return the area two rectangles share."""
        across = (self.width + other.width) / 2 - abs(self.x - other.x)
        along = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(0.0, across) * max(0.0, along)

    def distance(self, point: Point) -> float:
        """Return how far a point is from the nearest edge, and a little more off the middle."""
        across, along = abs(self.x - point[0]), abs(self.y - point[1])
        gap = math.hypot(max(0.0, across - self.width / 2), max(0.0, along - self.height / 2))
        return gap + 0.1 * math.hypot(across, along)

    def outside(self, room: Box) -> float:
        """Return how far the rectangle sticks out of another."""
        across = abs(self.x - room.x) - (room.width - self.width) / 2
        along = abs(self.y - room.y) - (room.height - self.height) / 2
        return max(0.0, across) + max(0.0, along)


def place_labels(
    points: Sequence[Point], texts: Sequence[str], room: Box, size: float
) -> list[Box]:
    """Return a rectangle a label near its point, off the other points and labels; all in points.

    Greedy, in the given order: each label takes the place that costs least around its point.
    """
    dots = [Box(x, y, 1.2 * size, 1.2 * size) for x, y in points]
    placed: list[Box] = []
    for (x, y), text in zip(points, texts, strict=True):
        width, height = LETTER * size * len(text), LINE * size
        placed.append(
            min(
                _around(x, y, width, height),
                key=lambda box: _cost(box, (x, y), room, dots, placed),
            )
        )
    return placed


def _around(x: float, y: float, width: float, height: float) -> list[Box]:
    """Return places for a label, beside, above and below a point, near ones first."""
    turns = [math.pi * eighth / 8 for eighth in range(16)]
    return [
        Box(
            x + math.cos(turn) * (distance + width / 2),
            y + math.sin(turn) * (distance + height / 2),
            width,
            height,
        )
        for distance, turn in product((7, 10, 14, 20, 28, 38, 50, 65, 80), turns)
    ]


def _cost(box: Box, point: Point, room: Box, dots: Sequence[Box], placed: Sequence[Box]) -> float:
    hidden = 2 * sum(map(box.overlap, dots)) + 3 * sum(map(box.overlap, placed))
    away = math.hypot(
        box.x - point[0] - math.copysign(box.width / 2, box.x - point[0]), box.y - point[1]
    )
    return hidden + 50 * box.outside(room) + 0.3 * away
