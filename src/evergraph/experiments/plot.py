"""The learning curve of one result, drawn into axes that the caller may go on with.

Not one of ``reports.figures``: those are files for a page, of many runs side by side, and reports
stand above experiments. This is one line for the eye, with the caller's own style.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.core.checks import check_choice
from evergraph.core.extras import require
from evergraph.evaluation import average_accuracy_curve
from evergraph.streams.stream import TESTINGS

if TYPE_CHECKING:
    from evergraph.experiments.result import RunResult

LINES = {"local": "-", "global": "--"}


def plot_curve(result: RunResult, *, average: str, axes: Any = None) -> Any:
    """Draw AA after each test, the mean over seeds, a band one deviation wide; return the axes."""
    check_choice("average", average, result.yardstick.rows)
    require("matplotlib", extra="report", why="RunResult.plot()")
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots()[1]
    colour = axes.plot([], [])[0].get_color()
    name = result.config.method.name
    for testing in TESTINGS:
        curves = 100 * np.array(
            [average_accuracy_curve(seed.matrix(testing, average)) for seed in result.seeds]
        )  # [seeds, tests]
        tasks, mean = result.seeds[0].tested_after, curves.mean(axis=0)
        style = {"color": colour, "linestyle": LINES[testing], "marker": "o", "markersize": 4}
        axes.plot(tasks, mean, label=f"{name}, {testing}", **style)
        if len(curves) > 1:
            deviation = curves.std(axis=0, ddof=1)
            axes.fill_between(tasks, mean - deviation, mean + deviation, color=colour, alpha=0.15)
    learned = "batches" if "steps" in result.dataset else "tasks"
    axes.set(xlabel=f"{learned} learned", ylabel=f"average {result.yardstick.name} (%)")
    axes.set_title(f"{result.config.dataset.name}, {result.config.stream.setting}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    return axes
