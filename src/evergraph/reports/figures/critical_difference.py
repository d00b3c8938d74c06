"""Critical difference diagram: mean ranks over datasets, with bars joining similar methods."""

from __future__ import annotations

import math
from typing import Any

from evergraph.reports.comparing import Standing, p_text
from evergraph.reports.figures.picture import INK, Frame, Picture, drawn, shortened
from evergraph.reports.runs import slugs_of

ROW, BAR, WIDTH = 0.2, 0.1, 5.6  # inches: a name, the bar of a clique, the figure
LETTER, NAME = 0.066, 18  # width of a letter in inches, letters of a name
TICK = 0.25  # least distance between ticks in inches
QUIET = "#9ca3af"


def critical_difference(standing: Standing) -> Picture:
    """Draw the diagram of Demšar (2006), with the best method on the left.

    Bars join methods whose mean ranks are within the critical difference of each other.
    """
    names = [f"{shortened(name, NAME)}  {rank:.2f}" for name, rank in _ranked(standing)]
    half = (len(names) + 1) // 2
    sides = max(map(len, names[:half])), max(map(len, names[half:]))
    below = BAR * (len(standing.ranks.cliques) + 1) + ROW * half
    left, right = (0.3 + LETTER * longest for longest in sides)
    frame = Frame(WIDTH, 1.15 + below, left=left, right=right, top=1.0, bottom=0.15)

    def draw(figure: Any, axes: Any) -> None:
        _axis(axes, len(names), below)
        _key(figure, axes, standing)
        _cliques(axes, standing)
        for place, name in enumerate(names):
            _method(axes, standing, place, name, half)

    title = f"{standing.setting}, {standing.testing}"
    (slug,) = slugs_of([f"{standing.setting}-{standing.testing}"])
    return drawn(f"critical_difference-{slug}", f"Mean ranks: {title}", frame, draw)


def _ranked(standing: Standing) -> list[tuple[str, float]]:
    return list(zip(standing.methods, standing.ranks.mean_ranks, strict=True))


def _axis(axes: Any, methods: int, below: float) -> None:
    """Draw ranks along the top; the vertical unit is inches downwards."""
    axes.set(xlim=(1, methods), ylim=(below, 0))
    axes.grid(visible=False)
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_visible(True)
    axes.yaxis.set_visible(False)
    axes.xaxis.tick_top()
    width = axes.get_position().width * WIDTH
    step = math.ceil((methods - 1) * TICK / width)
    ticks = [1, *range(1 + step, methods + 1, step)]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])


def _key(figure: Any, axes: Any, standing: Standing) -> None:
    """Write the title, the test, and the length of the critical difference."""
    inch = 1 / figure.get_figheight()
    head = {"ha": "left", "va": "top"}
    title = f"{standing.setting}, {standing.testing}"
    figure.text(0.03, 1 - 0.08 * inch, title, weight="bold", fontsize=10, **head)
    told = f"mean rank over {len(standing.datasets)} datasets, Friedman {_p(standing)}"
    figure.text(0.03, 1 - 0.29 * inch, told, fontsize=8, color=INK, **head)
    apart = standing.ranks.critical_difference
    style = {"color": INK, "clip_on": False, "linewidth": 1.2}
    axes.plot([1, 1 + apart], [-0.33, -0.33], marker="|", markersize=6, **style)
    text = f"critical difference {apart:.2f}"
    axes.text(1, -0.38, text, ha="left", va="bottom", fontsize=8, color=INK)


def _p(standing: Standing) -> str:
    told = p_text(standing.ranks.friedman_p)
    return told if standing.ranks.differs else f"{told}: cannot tell them apart"


def _cliques(axes: Any, standing: Standing) -> None:
    overhang = 0.012 * (len(standing.methods) - 1)
    for place, clique in enumerate(standing.ranks.cliques):
        ends = [standing.ranks.mean_ranks[i] for i in (clique[0], clique[-1])]
        x = [min(ends) - overhang, max(ends) + overhang]
        y = [BAR * (place + 1)] * 2
        axes.plot(x, y, color="black", linewidth=3, solid_capstyle="butt", clip_on=False, zorder=3)


def _method(axes: Any, standing: Standing, place: int, name: str, half: int) -> None:
    """Draw a line from a rank to its name; the outermost ranks get the topmost names."""
    count, rank = len(standing.methods), standing.ranks.mean_ranks[place]
    at_left = place < half
    row = place if at_left else count - 1 - place
    y = BAR * (len(standing.ranks.cliques) + 1) + ROW * (row + 0.5)
    inch = (count - 1) / (axes.get_position().width * WIDTH)
    edge = 1 - 0.12 * inch if at_left else count + 0.12 * inch
    axes.plot([rank, rank, edge], [0, y, y], color=QUIET, linewidth=1, clip_on=False)
    side = "right" if at_left else "left"
    x = edge + (-0.05 if at_left else 0.05) * inch
    axes.text(x, y, name, ha=side, va="center_baseline", fontsize=8, color=INK)
