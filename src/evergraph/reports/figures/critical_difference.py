"""Critical difference diagram: mean ranks over datasets, with bars joining similar methods."""

from __future__ import annotations

import math
from typing import Any

from evergraph.reports.comparing import Standing, p_text
from evergraph.reports.figures.picture import INK, Frame, Picture, drawn, shortened
from evergraph.reports.runs import slugs_of

ROW, BAR, WIDTH = 0.2, 0.1, 5.6  # inches: a name, the bar of a clique, the figure
LETTER, NAME = 0.066, 18  # width of a letter in inches, letters of a name
MIN_TICK_INCHES = 0.25  # least distance between ticks in inches
QUIET = "#9ca3af"


def critical_difference(standing: Standing) -> Picture:
    """Draw the diagram of Demšar (2006), with the best method on the left.

    Bars join methods whose mean ranks are within the critical difference of each other.
    """
    ranks = standing.ranks
    pairs = zip(standing.methods, ranks.mean_ranks, strict=True)
    names = [f"{shortened(name, NAME)}  {rank:.2f}" for name, rank in pairs]
    count, half = len(names), (len(names) + 1) // 2
    bars = BAR * (len(ranks.cliques) + 1)
    below = bars + ROW * half
    left, right = (0.3 + LETTER * max(map(len, side)) for side in (names[:half], names[half:]))
    frame = Frame(WIDTH, 1.15 + below, left=left, right=right, top=1.0, bottom=0.15)
    title = f"{standing.setting}, {standing.testing}"

    def draw(figure: Any, axes: Any) -> None:
        # Ranks run along the top; the vertical unit is inches downwards.
        width = axes.get_position().width * WIDTH
        axes.set(xlim=(1, count), ylim=(below, 0))
        axes.grid(visible=False)
        axes.spines[["left", "right", "bottom"]].set_visible(False)
        axes.spines["top"].set_visible(True)
        axes.yaxis.set_visible(False)
        axes.xaxis.tick_top()
        step = math.ceil((count - 1) * MIN_TICK_INCHES / width)
        ticks = [1, *range(1 + step, count + 1, step)]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        # The title, the test, and the length of the critical difference.
        high, head = 1 / figure.get_figheight(), {"ha": "left", "va": "top"}
        figure.text(0.03, 1 - 0.08 * high, title, weight="bold", fontsize=10, **head)
        told = f"mean rank over {len(standing.datasets)} datasets, Friedman "
        told += p_text(ranks.friedman_p)
        told = told if ranks.differs else f"{told}: cannot tell them apart"
        figure.text(0.03, 1 - 0.29 * high, told, fontsize=8, color=INK, **head)
        apart, style = ranks.critical_difference, {"color": INK, "clip_on": False, "linewidth": 1.2}
        axes.plot([1, 1 + apart], [-0.33, -0.33], marker="|", markersize=6, **style)
        text = f"critical difference {apart:.2f}"
        axes.text(1, -0.38, text, ha="left", va="bottom", fontsize=8, color=INK)
        overhang = 0.012 * (count - 1)
        bar = {"color": "black", "linewidth": 3, "solid_capstyle": "butt", "clip_on": False}
        for place, clique in enumerate(ranks.cliques):
            ends = [ranks.mean_ranks[i] for i in (clique[0], clique[-1])]
            x = [min(ends) - overhang, max(ends) + overhang]
            axes.plot(x, [BAR * (place + 1)] * 2, zorder=3, **bar)
        # A line leads from each rank to its name; the outermost ranks get the topmost names.
        inch = (count - 1) / width
        for place, (name, rank) in enumerate(zip(names, ranks.mean_ranks, strict=True)):
            at_left = place < half
            y = bars + ROW * ((place if at_left else count - 1 - place) + 0.5)
            edge, outwards = (1, -inch) if at_left else (count, inch)
            edge += 0.12 * outwards
            axes.plot([rank, rank, edge], [0, y, y], color=QUIET, linewidth=1, clip_on=False)
            style = {"ha": "right" if at_left else "left", "va": "center_baseline"}
            axes.text(edge + 0.05 * outwards, y, name, fontsize=8, color=INK, **style)

    (slug,) = slugs_of([f"{standing.setting}-{standing.testing}"])
    return drawn(f"critical_difference-{slug}", f"Mean ranks: {title}", frame, draw)
