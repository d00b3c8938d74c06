"""Learning curves task by task, and the accuracy matrix."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from evergraph.evaluation.accuracy_matrix import AccuracyMatrix, main_key, matrix_of
from evergraph.reports.figures import picture
from evergraph.reports.figures.picture import Frame, Look, Picture
from evergraph.reports.runs import Entry, Group

LINES = {"local": "-", "global": (0, (3, 1.6))}
LABEL_INCHES = 0.155  # height of a label in inches
MAX_TASKS_WRITTEN = 8  # most tasks for which numbers fit into the cells


def learning_curves(group: Group, looks: Mapping[str, Look]) -> Picture:
    """Draw local AA as solid lines and global AA as dashed ones, labelled at their ends."""
    longest = max(len(picture.shortened(entry.name)) for entry in group.entries)
    right = 0.68 + 0.072 * longest
    height = max(3.8, 1.2 + LABEL_INCHES * len(group.entries))
    frame = Frame(3.4 + right, height, right=right, top=0.58)

    def draw(figure: Any, axes: Any) -> None:
        tasks = max(entry.run.tested_after[-1] for entry in group.entries)
        curves = [_curve(entry, testing) for entry in group.entries for testing in LINES]
        limits = picture.percent_limits([value for curve in curves for value in curve])
        learned = "batches" if group.entries[0].run.step == "batch" else "tasks"
        axes.set(xlabel=f"{learned} learned", ylabel=f"average {group.metric} (%)", ylim=limits)
        axes.set_xlim(0.8, max(tasks, 2) + 0.2)
        axes.set_title(group.title, pad=24)
        axes.xaxis.get_major_locator().set_params(integer=True)
        for entry, (testing, line) in product(group.entries, LINES.items()):
            look, local, curve = looks[entry.name], testing == "local", _curve(entry, testing)
            axes.plot(
                entry.run.tested_after,
                curve,
                linestyle=line,
                color=look.colour,
                marker=look.marker,
                markevery=max(1, len(curve) // 6),
                markerfacecolor=look.colour if local else "white",
                linewidth=1.5 if local else 1.0,
                alpha=1.0 if local else 0.75,
                clip_on=False,
            )
        low, high = axes.get_ylim()
        inches = height - frame.top - frame.bottom
        _name_ends(axes, group, looks, gap=(high - low) * LABEL_INCHES / inches)
        lines = [axes.plot([], [], linestyle=line, color=picture.INK)[0] for line in LINES.values()]
        axes.legend(  # between title and axes
            lines,
            list(LINES),
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=2,
            frameon=False,
            borderaxespad=0.1,
            borderpad=0.2,
            handletextpad=0.4,
            columnspacing=1.2,
            fontsize=8,
        )

    return picture.drawn(f"learning_curves-{group.slug}", group.title, frame, draw)


def _name_ends(axes: Any, group: Group, looks: Mapping[str, Look], *, gap: float) -> None:
    """Write each name beside the end of its local line, with a thin leader line."""
    ends = [_curve(entry, "local")[-1] for entry in group.entries]
    edge = axes.get_xlim()[1]
    low, high = axes.get_ylim()
    places = picture.spread_apart(ends, gap=gap, low=low + gap / 2, high=high - gap / 2)
    step = (edge - 0.8) / 40
    for entry, end, place in zip(group.entries, ends, places, strict=True):
        look, last = looks[entry.name], entry.run.tested_after[-1]
        x = [last, edge, edge + step, edge + 1.8 * step]
        lead = {"color": look.colour, "linewidth": 0.6, "clip_on": False, "alpha": 0.6}
        axes.plot(x, [end, end, place, place], **lead)
        marks = {"color": look.colour, "marker": look.marker, "markersize": 4, "clip_on": False}
        axes.plot([edge + 2.6 * step], [place], **marks)
        text = f"{picture.shortened(entry.name)}  {end:.1f}"
        axes.text(
            edge + 3.5 * step, place, text, va="center_baseline", color=picture.INK, fontsize=8
        )


def _curve(entry: Entry, testing: str) -> list[float]:
    return [100 * value for value in entry.run.main("average_accuracy_curve", testing)]


def accuracy_matrix(group: Group, entry: Entry) -> Picture:
    """Draw a run's local and global matrices, class-balanced, the mean over its seeds."""

    def draw(figure: Any, axes: Any) -> None:
        for place, testing in zip(axes, ("local", "global"), strict=True):
            matrix = mean_matrix(entry, testing)
            look = {"vmin": 0, "vmax": 100, "cmap": "viridis", "interpolation": "none"}
            square = matrix.shape[0] == matrix.shape[1]
            image = place.imshow(matrix, aspect="equal" if square else "auto", **look)
            place.set_title(testing, fontsize=9, fontweight="normal", pad=5)
            place.set_xlabel(f"{entry.run.metric} on task")
            place.grid(visible=False)
            place.spines[:].set_visible(False)
            across, down = range(1, matrix.shape[1] + 1), entry.run.tested_after
            for axis, names in ((place.xaxis, across), (place.yaxis, down)):
                ticks = list(range(0, len(names), -(-len(names) // 8)))
                axis.set_ticks(ticks, [str(names[tick]) for tick in ticks])
                axis.set_tick_params(length=0)
            written = zip(*np.nonzero(~np.isnan(matrix)), strict=True)
            for i, j in written if len(matrix) <= MAX_TASKS_WRITTEN else ():
                style = {"ha": "center", "va": "center", "fontsize": 7}
                colour = "white" if matrix[i, j] < 60 else "black"  # white on dark colours
                place.text(j, i, f"{matrix[i, j]:.0f}", color=colour, **style)
        title = {"ha": "left", "va": "top", "weight": "bold", "fontsize": 10}
        figure.text(0.02, 0.97, f"{picture.shortened(entry.name)}: {group.title}", **title)
        axes[0].set_ylabel(f"after learning {entry.run.step}")
        bar = figure.add_axes((0.895, 0.18, 0.015, 0.58))
        figure.colorbar(image, cax=bar).outline.set_visible(False)

    frame = Frame(4.6, 2.7, left=0.42, right=0.58, top=0.58, bottom=0.42)
    name = f"accuracy_matrix-{group.slug}-{entry.slug}"
    return picture.drawn(name, f"{entry.name}: {group.title}", frame, draw, columns=2)


def mean_matrix(entry: Entry, testing: str) -> AccuracyMatrix:
    """Return the accuracies in percent, NaN for tasks not yet begun.  [tests, tasks]"""
    key = main_key(entry.run.result)
    seeds = [matrix_of(seed[testing][key]) for seed in entry.run.result["accuracy_matrix"]]
    return 100 * np.asarray(np.mean(seeds, axis=0))
