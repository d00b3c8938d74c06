"""AA after each task, one line per run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evergraph.reports.figures.bars import key_above
from evergraph.reports.figures.labels import spread_apart
from evergraph.reports.figures.look import INK, Look, percent_limits, shortened
from evergraph.reports.figures.picture import Frame, Picture, drawn
from evergraph.reports.runs import Entry, Group

LINES = {"local": "-", "global": (0, (3, 1.6))}
LABEL = 0.155  # inches a label takes, one below the other


def learning_curves(group: Group, looks: Mapping[str, Look]) -> Picture:
    """Draw local AA as full lines and global AA as dashed ones, each named at its end."""
    longest = max(len(shortened(entry.name)) for entry in group.entries)
    right = 0.68 + 0.072 * longest
    height = max(3.8, 1.2 + LABEL * len(group.entries))
    frame = Frame(3.4 + right, height, right=right, top=0.58)

    def draw(figure: Any, axes: Any) -> None:
        tasks = max(_tasks(entry) for entry in group.entries)
        _axes(axes, group, tasks)
        for entry in group.entries:
            _lines(axes, entry, looks[entry.name])
        low, high = axes.get_ylim()
        inches = height - frame.top - frame.bottom
        _name_ends(axes, group, looks, gap=(high - low) * LABEL / inches)
        lines = [axes.plot([], [], linestyle=line, color=INK)[0] for line in LINES.values()]
        key_above(axes, lines, list(LINES))

    return drawn(f"learning_curves-{group.slug}", group.title, frame, draw)


def _axes(axes: Any, group: Group, tasks: int) -> None:
    curves = [_curve(entry, testing) for entry in group.entries for testing in LINES]
    limits = percent_limits([value for curve in curves for value in curve])
    learned = "batches" if group.entries[0].run.step == "batch" else "tasks"
    axes.set(xlabel=f"{learned} learned", ylabel=f"average {group.metric} (%)", ylim=limits)
    axes.set_xlim(0.8, max(tasks, 2) + 0.2)
    axes.set_title(group.title, pad=24)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _lines(axes: Any, entry: Entry, look: Look) -> None:
    for testing, line in LINES.items():
        curve = _curve(entry, testing)
        axes.plot(
            entry.run.tested_after,
            curve,
            linestyle=line,
            color=look.colour,
            marker=look.marker,
            markevery=max(1, len(curve) // 6),
            markerfacecolor=look.colour if testing == "local" else "white",
            linewidth=1.5 if testing == "local" else 1.0,
            alpha=1.0 if testing == "local" else 0.75,
            clip_on=False,
        )


def _name_ends(axes: Any, group: Group, looks: Mapping[str, Look], *, gap: float) -> None:
    """Write each name beside the end of its local line, one below the other, with a thin lead."""
    ends = [_curve(entry, "local")[-1] for entry in group.entries]
    edge = axes.get_xlim()[1]
    low, high = axes.get_ylim()
    places = spread_apart(ends, gap=gap, low=low + gap / 2, high=high - gap / 2)
    step = (edge - 0.8) / 40
    for entry, end, place in zip(group.entries, ends, places, strict=True):
        look, x = looks[entry.name], [_tasks(entry), edge, edge + step, edge + 1.8 * step]
        lead = {"color": look.colour, "linewidth": 0.6, "clip_on": False, "alpha": 0.6}
        axes.plot(x, [end, end, place, place], **lead)
        marks = {"color": look.colour, "marker": look.marker, "markersize": 4, "clip_on": False}
        axes.plot([edge + 2.6 * step], [place], **marks)
        text = f"{shortened(entry.name)}  {end:.1f}"
        axes.text(edge + 3.5 * step, place, text, va="center_baseline", color=INK, fontsize=8)


def _curve(entry: Entry, testing: str) -> list[float]:
    curve = entry.run.main("average_accuracy_curve", testing)
    return [100 * value for value in curve]


def _tasks(entry: Entry) -> int:
    return entry.run.tested_after[-1]
