"""What a notebook shows of a result below its numbers: the learning curve and the accuracy matrix.

Neither needs matplotlib. Cells are tinted, and text keeps the colour of the page, so that both are
read on a dark page as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from evergraph.core.display import line_chart
from evergraph.evaluation import AccuracyMatrix, average_accuracy_curve
from evergraph.streams.stream import TESTINGS

if TYPE_CHECKING:
    from evergraph.experiments.result import RunResult

TINT = "11, 143, 130"  # the colour of the chart's lines
STRONGEST = 0.6  # of a tint, so that black and white text can both be read on it
WIDEST = 25  # tasks: a larger matrix is not looked at cell by cell


def pictures(result: RunResult) -> str:
    """Return curve and matrix of a result as HTML, means over its seeds."""
    average, name = result.yardstick.main, result.yardstick.name
    means = {
        testing: np.mean([seed.matrix(testing, average) for seed in result.seeds], axis=0)
        for testing in TESTINGS
    }
    curves = {testing: curve_of(matrix) for testing, matrix in means.items()}
    chart = line_chart(curves, x="tasks learned", y=f"average {name}")
    testing = TESTINGS[0]
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
