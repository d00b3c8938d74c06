"""Accuracy on each task after each task, as heat maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evergraph.experiments.spread import main_key
from evergraph.reports.figures.look import shortened
from evergraph.reports.figures.picture import Frame, Picture, drawn
from evergraph.reports.runs import Entry, Finished, Group

WRITTEN = 8  # tasks, up to which the numbers fit into their cells


def accuracy_matrix(group: Group, entry: Entry) -> Picture:
    """Draw a run's matrices, local and global, class-balanced, the mean over its seeds."""

    def draw(figure: Any, axes: Any) -> None:
        for place, testing in zip(axes, ("local", "global"), strict=True):
            matrix = mean_matrix(entry, testing)
            look = {"vmin": 0, "vmax": 100, "cmap": "viridis", "interpolation": "none"}
            square = matrix.shape[0] == matrix.shape[1]
            image = place.imshow(matrix, aspect="equal" if square else "auto", **look)
            _dress(place, testing, matrix.shape[1], entry.run)
            if len(matrix) <= WRITTEN:
                _write(place, matrix)
        title = {"ha": "left", "va": "top", "weight": "bold", "fontsize": 10}
        figure.text(0.02, 0.97, f"{shortened(entry.name)}: {group.title}", **title)
        axes[0].set_ylabel(f"after learning {entry.run.step}")
        bar = figure.add_axes((0.895, 0.18, 0.015, 0.58))
        figure.colorbar(image, cax=bar).outline.set_visible(False)

    frame = Frame(4.6, 2.7, left=0.42, right=0.58, top=0.58, bottom=0.42)
    name = f"accuracy_matrix-{group.slug}-{entry.slug}"
    return drawn(name, f"{entry.name}: {group.title}", frame, draw, columns=2)


def mean_matrix(entry: Entry, testing: str) -> npt.NDArray[np.float64]:
    """Return the accuracies in percent, NaN where a task had not begun.  [tests, tasks]"""
    key = main_key(entry.run.result)
    seeds = [seed[testing][key] for seed in entry.run.result["accuracy_matrix"]]
    matrix = np.full((len(seeds[0]), len(seeds[0][-1])), np.nan)
    for i, row in enumerate(seeds[0]):
        matrix[i, : len(row)] = np.mean([seed[i] for seed in seeds], axis=0)
    return 100 * matrix


def _dress(axes: Any, testing: str, tasks: int, run: Finished) -> None:
    axes.set_title(testing, fontsize=9, fontweight="normal", pad=5)
    axes.set_xlabel(f"{run.metric} on task")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for axis, names in ((axes.xaxis, range(1, tasks + 1)), (axes.yaxis, run.tested_after)):
        ticks = list(range(0, len(names), -(-len(names) // 8)))
        axis.set_ticks(ticks, [str(names[tick]) for tick in ticks])
        axis.set_tick_params(length=0)


def _write(axes: Any, matrix: npt.NDArray[np.float64]) -> None:
    """Write the numbers, white on the dark half of the colours."""
    for i, j in zip(*np.nonzero(~np.isnan(matrix)), strict=True):
        value = matrix[i, j]
        colour = "white" if value < 60 else "black"
        axes.text(j, i, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=7)
