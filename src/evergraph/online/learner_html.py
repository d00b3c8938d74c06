"""What a notebook shows of a live learner below its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.core.display import line_chart
from evergraph.online.page import History, Status
from evergraph.online.prequential import Point

LEAST, MOST = 20, 40  # predictions a point, and points: single deltas bring a few labels each


def history_chart(history: History, status: Status) -> str:
    """Return how good predictions were before their labels came, as SVG; nothing before the first.

    Numbers have errors of any size, which such a chart does not show.
    """
    if not history["curve"] or status.metric == "mean absolute error":
        return ""
    name = f"{status.metric} of predictions before their labels came"
    return line_chart({status.metric: joined(history["curve"])}, x="deltas", y=name)


def joined(curve: Sequence[Point]) -> list[tuple[int, float]]:
    """Return the share that was right, and after which delta, of stretches that tell something.

    What is left at the end is too little for a point, unless it is all there is.

    >>> few = Point(seq=1, nodes=9, classes=2, asked=12, right=9)
    >>> joined([few, few | {"seq": 2}, few | {"seq": 3}]), joined([few])
    ([(2, 0.75)], [(1, 0.75)])
    """
    least = max(LEAST, sum(point["asked"] for point in curve) / MOST)
    points: list[tuple[int, float]] = []
    asked = right = 0.0
    for point in curve:
        asked, right = asked + point["asked"], right + point["right"]
        if asked >= least:
            points.append((point["seq"], right / asked))
            asked = right = 0.0
    return points or [(curve[-1]["seq"], right / asked)]
