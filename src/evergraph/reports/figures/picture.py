"""A figure, drawn without a screen and without global state."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evergraph.core.extras import require
from evergraph.reports.figures.look import STYLE

DPI = 150


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Attributes:
        name: of its files, without an ending.
        title: what it shows, for a caption.
        svg, png: the same figure in two formats.
    """

    name: str
    title: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class Frame:
    """The size of a figure and the room around its axes, in inches."""

    width: float
    height: float
    left: float = 0.55
    right: float = 0.15
    top: float = 0.4
    bottom: float = 0.5

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the axes, as fractions of the figure."""
        width = self.width - self.left - self.right
        height = self.height - self.top - self.bottom
        return (
            self.left / self.width,
            self.bottom / self.height,
            width / self.width,
            height / self.height,
        )


def drawn(
    name: str,
    title: str,
    frame: Frame,
    draw: Callable[[Any, Any], None],
    *,
    rows: int = 1,
    columns: int = 1,
) -> Picture:
    """Return the picture that ``draw(figure, axes)`` makes; the same input gives the same bytes."""
    require("matplotlib", extra="report", why=f"drawing {name}")
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(frame.width, frame.height))
        FigureCanvasAgg(figure)
        left, bottom, width, height = frame.box
        figure.subplots_adjust(left, bottom, left + width, bottom + height)
        draw(figure, figure.subplots(rows, columns))
        return Picture(name, title, _svg(figure), _png(figure))


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
    return content.getvalue()
