"""The figures of a report: learning curves, accuracy matrices and mean ranks.

They are drawn without a display and without global state.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.core.packages import require
from evergraph.evaluation.evaluator import AccuracyMatrix, main_key, matrix_of
from evergraph.reports.runs import Entry, Group, p_text, slugs_of

if TYPE_CHECKING:
    from evergraph.reports.comparing import Standing

# Okabe and Ito's colours can be distinguished with every common colour blindness; their yellow is
# too pale for lines on white. Seven colours and eight markers: the first 56 looks all differ.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# Set on top of matplotlib's defaults, whatever the user's settings.
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.labelsize": 8.5,
    "axes.labelcolor": "#374151",
    "axes.edgecolor": "#9ca3af",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.7,
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "xtick.labelcolor": "#374151",
    "ytick.labelcolor": "#374151",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.markersize": 4.5,
    "text.parse_math": False,  # a label may hold a dollar sign
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "evergraph",
}
TEXT_COLOUR, PALE_COLOUR = "#374151", "#9ca3af"
DPI = 150
HEADING: dict[str, Any] = {"x": 0.02, "ha": "left", "weight": "bold", "fontsize": 10}
LINE_STYLES = {"local": "-", "global": (0, (3, 1.6))}
MAX_TASKS_WRITTEN = 8  # most tasks for which numbers fit into the cells
Inches = tuple[float, float]
"""Width and height."""


@dataclass(frozen=True)
class Look:
    """A colour and a marker."""

    colour: str
    marker: str


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Return a look for each name, the first 56 all different."""
    return {
        name: Look(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)])
        for index, name in enumerate(names)
    }


def percent_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis of accuracies: from 0 if any is low, else closer to them.

    R2 may be negative: the axis then starts lower, but not below -100 percent.

    >>> percent_limits([19.5, 96.5]), percent_limits([60.8, 98.3])
    ((-2.0, 102.0), (49.0, 101.0))
    """
    lowest = min(values)
    start = 0.0 if 0 <= lowest < 30 else max(10.0 * ((lowest - 5) // 10), -100.0)
    room = 0.02 * (100 - start)
    return start - room, 100 + room


def shortened(name: str, length: int = 24) -> str:
    """Return a name short enough for a figure.

    >>> shortened("tem (a/very/long/folder/of/runs)")
    'tem (a/very/…der/of/runs)'
    """
    if len(name) <= length:
        return name
    return f"{name[: length // 2]}…{name[-length // 2 :]}"


@dataclass(frozen=True)
class Picture:
    """A drawn figure in two formats; ``name`` is that of its files, without suffix."""

    name: str
    title: str
    svg: str
    png: bytes


def drawn(
    name: str, title: str, size: Inches, draw: Callable[[Any, Any], None], *, columns: int = 1
) -> Picture:
    """Return the picture drawn by ``draw(figure, axes)``; the same input gives the same bytes."""
    require("matplotlib", extra="report", why=f"drawing {name}")
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(STYLE, after_reset=True):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, figure.subplots(1, columns))
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # it is laid out by now
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        return Picture(name, title, svg.getvalue(), png.getvalue())


def learning_curves(group: Group, looks: Mapping[str, Look]) -> Picture:
    """Draw local AA as solid lines and global AA as dashed ones; the last local AA beside names."""
    longest = max(len(shortened(entry.name)) for entry in group.entries)
    size = 4.1 + 0.072 * longest, max(3.8, 1.2 + 0.155 * len(group.entries))

    def draw(figure: Any, axes: Any) -> None:
        tasks = max(entry.run.tested_after[-1] for entry in group.entries)
        curves = [_curve(entry, testing) for entry in group.entries for testing in LINE_STYLES]
        limits = percent_limits([value for curve in curves for value in curve])
        learned = "batches" if group.entries[0].run.step == "batch" else "tasks"
        axes.set(xlabel=f"{learned} learned", ylabel=f"average {group.metric} (%)", ylim=limits)
        axes.set_xlim(0.8, max(tasks, 2) + 0.2)
        axes.set_title(group.title, pad=24)
        axes.xaxis.get_major_locator().set_params(integer=True)
        for entry, (testing, line) in product(group.entries, LINE_STYLES.items()):
            look = looks[entry.name]
            local = testing == "local"
            curve = _curve(entry, testing)
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
                label=f"{shortened(entry.name)}  {curve[-1]:.1f}" if local else None,
            )
        style = {"frameon": False, "fontsize": 8, "borderaxespad": 0.1, "borderpad": 0.2}
        figure.legend(loc="outside right upper", handlelength=1.2, **style)
        lines = [
            axes.plot([], [], linestyle=line, color=TEXT_COLOUR)[0] for line in LINE_STYLES.values()
        ]
        axes.legend(  # between title and axes
            lines,
            list(LINE_STYLES),
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=2,
            handletextpad=0.4,
            columnspacing=1.2,
            **style,
        )

    return drawn(f"learning_curves-{group.slug}", group.title, size, draw)


def _curve(entry: Entry, testing: str) -> list[float]:
    return [100 * value for value in entry.run.main("average_accuracy_curve", testing)]


def accuracy_matrix(group: Group, entry: Entry) -> Picture:
    """Draw a run's local and global matrices, class-balanced, the mean over its seeds."""

    def draw(figure: Any, axes: Any) -> None:
        for panel, testing in zip(axes, ("local", "global"), strict=True):
            matrix = mean_matrix(entry, testing)
            look = {"vmin": 0, "vmax": 100, "cmap": "viridis", "interpolation": "none"}
            square = matrix.shape[0] == matrix.shape[1]
            image = panel.imshow(matrix, aspect="equal" if square else "auto", **look)
            panel.set_title(testing, fontsize=9, fontweight="normal", pad=5)
            panel.set_xlabel(f"{entry.run.metric} on task")
            panel.grid(visible=False)
            panel.spines[:].set_visible(False)
            tasks = range(1, matrix.shape[1] + 1)
            for axis, names in ((panel.xaxis, tasks), (panel.yaxis, entry.run.tested_after)):
                ticks = list(range(0, len(names), -(-len(names) // 8)))
                axis.set_ticks(ticks, [str(names[tick]) for tick in ticks])
                axis.set_tick_params(length=0)
            if len(matrix) > MAX_TASKS_WRITTEN:
                continue
            for i, j in zip(*np.nonzero(~np.isnan(matrix)), strict=True):
                style = {"ha": "center", "va": "center", "fontsize": 7}
                colour = "white" if matrix[i, j] < 60 else "black"  # white on dark colours
                panel.text(j, i, f"{matrix[i, j]:.0f}", color=colour, **style)
        figure.suptitle(f"{shortened(entry.name)}: {group.title}", **HEADING)
        axes[0].set_ylabel(f"after learning {entry.run.step}")
        figure.colorbar(image, ax=axes, shrink=0.8).outline.set_visible(False)

    name = f"accuracy_matrix-{group.slug}-{entry.slug}"
    return drawn(name, f"{entry.name}: {group.title}", (4.6, 2.7), draw, columns=2)


def mean_matrix(entry: Entry, testing: str) -> AccuracyMatrix:
    """Return the accuracies in percent, NaN for tasks not yet begun.  [tests, tasks]"""
    key = main_key(entry.run.result)
    seeds = [matrix_of(seed[testing][key]) for seed in entry.run.result["accuracy_matrix"]]
    return 100 * np.asarray(np.mean(seeds, axis=0))


def critical_difference(standing: Standing) -> Picture:
    """Draw mean ranks with bars of half the critical difference to each side, the best at the top.

    Two methods are told apart if their bars do not overlap, and Friedman's test finds a difference.
    """
    ranks = standing.ranks
    count = len(standing.methods)
    title = f"{standing.setting}, {standing.testing}"
    names = [shortened(name) for name in standing.methods]

    def draw(figure: Any, axes: Any) -> None:
        tested = f"Friedman {p_text(ranks.friedman_p)} over {len(standing.datasets)} datasets"
        verdict = "bars that overlap cannot be told apart"
        if not ranks.differs:
            verdict = "no methods can be told apart"
        figure.suptitle(title, **HEADING)
        figure.supxlabel(f"{tested}: {verdict}", x=0.02, ha="left", fontsize=8, color=TEXT_COLOUR)
        half = ranks.critical_difference / 2
        rows = range(count)
        style = {"fmt": "o", "color": COLOURS[0], "ecolor": PALE_COLOUR}
        axes.errorbar(ranks.mean_ranks, rows, xerr=half, elinewidth=4, **style)
        axes.set_yticks(rows, names)
        axes.set(xlabel="mean rank, 1 being the best", ylim=(count - 0.5, -0.5))
        axes.grid(visible=False, axis="y")

    (slug,) = slugs_of([f"{standing.setting}-{standing.testing}"])
    return drawn(
        f"critical_difference-{slug}", f"Mean ranks: {title}", (5.6, 1.15 + 0.22 * count), draw
    )
