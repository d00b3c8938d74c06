"""What a notebook shows of a live learner below its numbers."""

from __future__ import annotations

from evergraph.core.inline_chart import line_chart
from evergraph.online.page import History, Status


def history_chart(history: History, status: Status) -> str:
    """Return how good predictions were before their labels came, as SVG; nothing before the first.

    Numbers have errors of any size, which such a chart does not show.
    """
    points = [(point["seq"], point["right"] / point["asked"]) for point in history["curve"]]
    if not points or status.metric == "mean absolute error":
        return ""
    name = f"{status.metric} of predictions before their labels came"
    return line_chart({status.metric: points}, x="deltas", y=name)
