"""Pictures of a live learner: how good it was, what it knows, what changes, what it confuses.

They are drawn on axes that the caller gives, for ``plot`` and for the page of ``evergraph report``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import NothingLearnedError
from evergraph.core.packages import require
from evergraph.core.targets import Label
from evergraph.online.monitor import Alarm, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evergraph.online.learner import OnlineLearner

WINDOW = 100  # predictions behind a point of the curve, at least
SHOWN = 12  # classes in a picture
LONGEST_NAME = 18  # characters of a class that are written
WRITTEN = 8  # classes up to which counts fit into the cells of a confusion matrix
FIRST, SECOND, ALARM = "C0", "C1", "#b3261e"


@dataclass(frozen=True)
class LearnerHistory:
    """What a learner has seen and predicted, to be drawn."""

    metric: str  # what the curve measures, such as ``accuracy``
    shares: bool  # whether it is a share, of which more is better; otherwise an error
    curve: Sequence[Point]  # predictions made before their labels came
    class_sizes: Mapping[Label, int]  # labelled nodes of each class, the most frequent first
    latest_sizes: Mapping[Label, int]  # the same among the newest quarter of recorded predictions
    recorded: Sequence[Label]  # classes of recorded predictions, the most frequent first
    confusion: Sequence[Sequence[int]]  # their matrix: a row per true class
    alarms: Sequence[Alarm] = ()  # the accuracy alarm while it is raised


def learner_history(learner: OnlineLearner) -> LearnerHistory:
    """Return what is drawn of a learner."""
    with learner.writing:
        knowledge, record, status = learner.knowledge, learner.record, learner.status()
        sizes: Counter[Label] = Counter()
        latest: Counter[Label] = Counter()
        recorded_classes: Counter[int] = Counter()  # classes of recorded predictions
        pairs = record.prequential.pairs_.tolist()
        if knowledge is not None:
            for number, count in enumerate(knowledge.labels.counts_.tolist()):
                if count:
                    names = learner.head.target.names(knowledge.classes.at(number))
                    sizes.update(dict.fromkeys(names, count))
            recorded_classes.update(right for right, _ in pairs)
            recorded_classes.update({given: 0 for _, given in pairs})
            newest = pairs[-max(len(pairs) // 4, WINDOW) :]
            latest.update(knowledge.classes.at(right) for right, _ in newest)
        numbers = [number for number, _ in recorded_classes.most_common()]
        return LearnerHistory(
            metric=status.metric,
            shares=not learner.head.target.rises,
            curve=record.prequential.curve(),
            class_sizes=dict(sizes.most_common()),
            latest_sizes=latest,
            recorded=[] if knowledge is None else [*map(knowledge.classes.at, numbers)],
            confusion=[row[:-1] for row in record.prequential.confusion(numbers)],
            alarms=learner.alarms(),
        )


def windows(curve: Sequence[Point], least: int = WINDOW) -> list[tuple[int, float]]:
    """Return the metric over at least so many predictions a window, with each one's last delta.

    >>> points = [Point(seq=n, nodes=n, classes=1, asked=2, right=n % 2 + 1) for n in (1, 2, 3)]
    >>> windows(points, least=4)  # 3 of 4, and the rest in the last window
    [(2, 0.75), (3, 1.0)]
    """
    means: list[tuple[int, float]] = []
    asked, right = 0, 0.0
    for number, point in enumerate(curve, start=1):
        asked, right = asked + point["asked"], right + point["right"]
        if asked >= least or (number == len(curve) and asked):
            means.append((point["seq"], right / asked))
            asked, right = 0, 0.0
    return means


def draw_accuracy(axes: Any, history: LearnerHistory) -> None:
    """Draw the metric over time: in windows of predictions, and over all of them so far."""
    scale = 100 if history.shares else 1
    newest = windows(history.curve)
    axes.plot(
        [seq for seq, _ in newest],
        [scale * value for _, value in newest],
        color=FIRST,
        alpha=0.45,
        marker="o",
        markersize=3,
        label="since the point before",
    )
    asked, right, overall = 0, 0.0, []
    for point in history.curve:
        asked, right = asked + point["asked"], right + point["right"]
        overall.append(scale * right / asked if asked else None)
    seqs = [point["seq"] for point in history.curve]
    axes.plot(seqs, overall, color=FIRST, linewidth=2, label="all so far")
    for alarm in history.alarms:
        axes.axvline(alarm.seq, color=ALARM, linestyle="--", linewidth=1, label="alarm")
    unit = " (%)" if history.shares else ""
    axes.set(xlabel="deltas", ylabel=f"{history.metric}{unit}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if history.shares:
        axes.set_ylim(-2, 102)
    axes.legend(loc="best", frameon=False)


def draw_growth(axes: Any, history: LearnerHistory) -> None:
    """Draw the nodes of the graph over time, and how many classes are known."""
    seqs = [point["seq"] for point in history.curve]
    axes.plot(seqs, [point["nodes"] for point in history.curve], color=FIRST)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("deltas")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("nodes", color=FIRST)
    if not history.class_sizes:  # targets are numbers
        return
    beside = axes.twinx()
    beside.plot(
        seqs, [point["classes"] for point in history.curve], color=SECOND, drawstyle="steps-post"
    )
    beside.set_ylim(bottom=0)
    beside.set_ylabel("classes", color=SECOND)
    beside.spines["right"].set_visible(True)
    beside.grid(visible=False)
    beside.yaxis.get_major_locator().set_params(integer=True)


def draw_classes(axes: Any, history: LearnerHistory) -> None:
    """Draw how many labelled nodes the largest classes have."""
    names = list(history.class_sizes)[:SHOWN]
    axes.barh(range(len(names)), [history.class_sizes[name] for name in names], color=FIRST)
    _name_rows(axes, names)
    left_out = len(history.class_sizes) - len(names)
    axes.set_xlabel(
        f"labelled nodes{f' ({left_out} smaller classes not shown)' if left_out else ''}"
    )


def draw_drift(axes: Any, history: LearnerHistory) -> None:
    """Draw each class's share of all labelled nodes, and of the latest predictions."""
    names = list(history.class_sizes)[:SHOWN]
    for sizes, colour, marker, label in (
        (history.class_sizes, FIRST, "o", "of all labelled nodes"),
        (history.latest_sizes, SECOND, "D", "of the latest labels"),
    ):
        total = sum(sizes.values()) or 1
        shares = [100 * sizes.get(name, 0) / total for name in names]
        axes.plot(shares, range(len(names)), marker, color=colour, label=label)
    _name_rows(axes, names)
    axes.margins(x=0.08)
    axes.set_xlim(left=0)
    axes.set_xlabel("share (%)")
    axes.legend(loc="best", frameon=False)


def draw_confusion(axes: Any, names: Sequence[Label], counts: Sequence[Sequence[int]]) -> None:
    """Draw a square confusion matrix of the most frequent classes, which come first."""
    import numpy as np

    matrix = np.array(counts, dtype=float).reshape(len(names), -1)
    table, class_names = matrix[:SHOWN, :SHOWN], [str(name) for name in names[:SHOWN]]
    shares = 100 * table / np.maximum(matrix[:SHOWN].sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    if len(class_names) <= WRITTEN:
        for row, column in np.argwhere(table > 0).tolist():
            colour = "white" if shares[row, column] > 55 else "black"
            text = f"{table[row, column]:,.0f}"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7)
    ticks = [_short(name) for name in class_names]
    slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(ticks)), ticks, **slanted)
    axes.set_yticks(range(len(ticks)), ticks)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.set(xlabel="predicted", ylabel="true class")


def plot(learner: OnlineLearner) -> Figure:
    """Return a ``matplotlib.figure.Figure`` of accuracy, growth, classes and confusion."""
    require("matplotlib", extra="report", why="plot")
    from matplotlib.figure import Figure

    history = learner_history(learner)
    pictures = pictures_of(history)
    if not pictures:
        raise NothingLearnedError("nothing can be drawn yet: label some nodes first")
    rows = (len(pictures) + 1) // 2
    figure = Figure(figsize=(10, 3.6 * rows), layout="constrained")
    all_axes = figure.subplots(rows, 2, squeeze=False).flatten()
    for axes, (title, draw) in zip(all_axes, pictures.items(), strict=False):
        draw(axes)
        axes.set_title(title, loc="left")
    for axes in all_axes[len(pictures) :]:
        axes.set_axis_off()
    return figure


def pictures_of(history: LearnerHistory) -> dict[str, Callable[[Any], None]]:
    """Return what draws each picture for which there is something to draw, by title."""
    drawn: dict[str, Callable[[Any], None]] = {}
    if history.curve:
        drawn["Predictions before their labels came"] = partial(draw_accuracy, history=history)
        drawn["Growth"] = partial(draw_growth, history=history)
    if history.class_sizes:
        drawn["Classes"] = partial(draw_classes, history=history)
    if history.latest_sizes:
        drawn["Drift of the classes"] = partial(draw_drift, history=history)
        drawn["Confusion of the latest predictions"] = partial(
            draw_confusion, names=history.recorded, counts=history.confusion
        )
    return drawn


def _name_rows(axes: Any, names: Sequence[Label]) -> None:
    axes.set_yticks(range(len(names)), [_short(str(name)) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
