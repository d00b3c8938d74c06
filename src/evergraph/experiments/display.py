"""How a result is displayed: its matrix in a notebook, and a learning curve in the caller's axes.

``reports.figures`` draws files that compare many runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evergraph.evaluation import AccuracyMatrix, average_accuracy_curve

LINES = {"local": "-", "global": "--"}
# Cells are tinted and text keeps the page's colour, so that it can be read on a dark page too.
TINT, STRONGEST = "11, 143, 130", 0.6
WIDEST = 25  # tasks; a larger matrix is not shown


def matrix_table(matrix: AccuracyMatrix, caption: str) -> str:
    """Return an accuracy matrix as a table of tinted cells, or a sentence if it is too wide.

    caption: trusted HTML, which is not escaped.
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


def plot_curves(
    axes: Any,
    matrices: Mapping[str, Sequence[AccuracyMatrix]],
    tested_after: Sequence[int],
    *,
    name: str,
) -> None:
    """Draw AA after each test, the mean over seeds with a band of one standard deviation.

    matrices: one per seed, by kind of testing. name: of the lines.
    """
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
