"""A result for the eye: curve and matrix in a notebook, and the learning curve drawn into axes.

It knows of matrices and names alone, not of results. The chart and the table of a notebook need no
matplotlib; cells are tinted, and text keeps the colour of the page, so that both are read on a dark
page as well. ``reports.figures`` are files for a page, of many runs side by side; the curve here
is one line with the caller's own style.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evergraph.core.display import line_chart
from evergraph.core.extras import require
from evergraph.evaluation import AccuracyMatrix, average_accuracy_curve

LINES = {"local": "-", "global": "--"}
TINT = "11, 143, 130"  # the colour of the chart's lines
STRONGEST = 0.6  # of a tint, so that black and white text can both be read on it
WIDEST = 25  # tasks: a larger matrix is not looked at cell by cell


def pictures(means: Mapping[str, AccuracyMatrix], *, average: str, name: str) -> str:
    """Return curves and the first matrix as HTML.

    means: over seeds, by way of testing. average, name: what is measured.
    """
    curves = {testing: curve_of(matrix) for testing, matrix in means.items()}
    chart = line_chart(curves, x="tasks learned", y=f"average {name}")
    testing = next(iter(means))
    caption = f"<b>{name}</b>, {testing}, {average}, in percent: a row after each task"
    return f"{chart}{matrix_table(means[testing], caption)}"


def curve_of(matrix: AccuracyMatrix) -> list[tuple[float, float]]:
    """Return AA after how many tasks, of those after which it was measured.

    >>> curve_of(np.array([[0.5, np.nan, np.nan], [np.nan] * 3, [0.5, 0.75, 1.0]]))
    [(1, 0.5), (3, 0.75)]
    """
    measured = np.flatnonzero(~np.isnan(matrix).all(axis=1))
    values = average_accuracy_curve(matrix[measured])
    return [
        (task + 1, value) for task, value in zip(measured.tolist(), values.tolist(), strict=True)
    ]


def matrix_table(matrix: AccuracyMatrix, caption: str) -> str:
    """Return an accuracy matrix as a table of tinted cells, or a sentence where it is too wide.

    caption: HTML of ours, which is not escaped.

    >>> table = matrix_table(np.array([[0.9, np.nan], [0.5, 0.7]]), "accuracy")
    >>> table.count("<tr>"), ">90.0</td><td></td>" in table, "0.540" in table
    (3, True, True)
    """
    tasks = len(matrix)
    if tasks > WIDEST:
        return (
            f"<p>The accuracy matrix of {tasks} tasks is too wide to be shown here: "
            "<code>result.to_frame()</code> has every number.</p>"
        )
    head = "".join(f"<th>task {task}</th>" for task in range(tasks))
    rows = "".join(
        f"<tr><th>after task {after}</th>{''.join(map(_cell, row))}</tr>"
        for after, row in enumerate(matrix.tolist())
    )
    table = f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{rows}</table>"
    return f'<div style="overflow-x: auto">{table}</div>'


def _cell(value: float) -> str:
    if math.isnan(value):
        return "<td></td>"
    tint = STRONGEST * min(max(value, 0.0), 1.0)
    return f'<td style="background: rgba({TINT}, {tint:.3f})">{100 * value:.1f}</td>'


def new_axes() -> Any:
    """Return matplotlib's axes to draw into."""
    require("matplotlib", extra="report", why="RunResult.plot()")
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def plot_curves(
    axes: Any,
    matrices: Mapping[str, Sequence[AccuracyMatrix]],
    tested_after: Sequence[int],
    *,
    name: str,
) -> None:
    """Draw AA after each test, the mean over seeds with a band one deviation wide.

    matrices: one a seed, by way of testing. name: of the lines.
    """  # fmt: skip
    colour = axes.plot([], [])[0].get_color()
    for testing, seeds in matrices.items():
        curves = 100 * np.array([average_accuracy_curve(matrix) for matrix in seeds])
        mean = curves.mean(axis=0)  # of curves, [seeds, tests]
        style = {"color": colour, "linestyle": LINES[testing], "marker": "o", "markersize": 4}
        axes.plot(tested_after, mean, label=f"{name}, {testing}", **style)
        if len(curves) > 1:
            band = curves.std(axis=0, ddof=1)
            axes.fill_between(tested_after, mean - band, mean + band, color=colour, alpha=0.15)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
