"""Pictures of runs, readable for the colour-blind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.reports.collect import Finished

# Okabe and Ito's palette: eight colours that stay apart under every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def plot_learning_curves(runs: Sequence[Finished], path: Path) -> None:
    """Draw AA after each task, local as full lines and global as dashed ones."""
    figure, axes = _figure(7.5, 4.6)
    shared, names = _names(runs)
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        colour = PALETTE[place % len(PALETTE)]
        curves = run.result["average_accuracy_curve"]
        for testing, style in (("local", "-"), ("global", "--")):
            curve = 100 * np.array(curves[testing]["balanced"])
            axes.plot(
                np.arange(1, len(curve) + 1),
                curve,
                style,
                color=colour,
                label=f"{name} ({testing})",
            )
    axes.set(xlabel="tasks learned", ylabel="average accuracy, balanced (%)", ylim=(0, 101))
    axes.set_title(shared, fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=150, bbox_inches="tight")


def plot_accuracy_matrices(runs: Sequence[Finished], path: Path) -> None:
    """Draw each run's accuracy matrix (local, balanced, first seed) as a heat map."""
    figure, axes = _figure(3.6 * len(runs) + 0.6, 3.8, columns=len(runs))
    shared, names = _names(runs)
    figure.suptitle(shared, fontsize=10)
    for run, name, place in zip(runs, names, np.atleast_1d(axes), strict=True):
        rows = run.result["accuracy_matrix"][0]["local"]["balanced"]
        image = place.imshow(_square(rows), vmin=0, vmax=100, cmap="viridis")
        place.set(xlabel="accuracy on task", ylabel="after learning task")
        place.set_title(name, fontsize=9)
        for axis in (place.xaxis, place.yaxis):
            axis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=axes, shrink=0.8, label="accuracy (%)")
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _names(runs: Sequence[Finished]) -> tuple[str, list[str]]:
    """Return what all runs share, for a title, and what tells each of them apart."""
    tasks = {run.task for run in runs}
    if len(tasks) == 1:
        return tasks.pop(), [run.method for run in runs]
    return "", [f"{run.method}, {run.task}" for run in runs]


def _square(rows: list[list[float]]) -> Any:
    matrix = np.full((len(rows), len(rows)), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    return 100 * matrix


def _figure(width: float, height: float, *, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes that need no screen and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)
