"""How a run looks in every figure, for the colour-blind too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's colours stay apart under every common colour blindness; their yellow is too pale
# for lines on white. Seven colours and eight markers: the first 56 looks all differ.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# Set on top of matplotlib's own defaults, whatever the user's settings are.
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
INK = "#374151"


@dataclass(frozen=True)
class Look:
    """A colour and a marker."""

    colour: str
    marker: str


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Return a look a name, the first 56 all different.

    >>> looks_of(["ewc", "tem"])["tem"]
    Look(colour='#D55E00', marker='s')
    """
    return {
        name: Look(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate(names)
    }


def percent_limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis of accuracies: from 0 where any is low, else nearer to them.

    R2 may be below 0: the axis then begins lower, but no lower than where twice the spread is lost.

    >>> percent_limits([19.5, 96.5]), percent_limits([60.8, 98.3])
    ((-2.0, 102.0), (49.0, 101.0))
    """
    lowest = min(values)
    start = 0.0 if 0 <= lowest < 30 else max(10.0 * ((lowest - 5) // 10), -100.0)
    room = 0.02 * (100 - start)
    return start - room, 100 + room


def shortened(name: str, length: int = 24) -> str:
    """Return a name that fits beside a figure.

    >>> shortened("tem (a/very/long/folder/of/runs)")
    'tem (a/very/…der/of/runs)'
    """
    if len(name) <= length:
        return name
    return f"{name[: length // 2]}…{name[-length // 2 :]}"
