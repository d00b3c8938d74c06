"""Where an axis on a log scale ends, and where it is marked."""

from __future__ import annotations

import math
from collections.abc import Sequence

ROOM = 1.6  # between the outermost amount and the end of the axis: a tick of 1, 2, 5 always fits
MOST_TICKS = 7


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
