"""Display in a notebook: one line, a small table, and line charts as SVG.

Text and axes inherit the colour of the surrounding text, so they are visible on a dark page too.
Importing this module loads neither torch nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from itertools import cycle

WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 68, 10, 30  # margins for numbers, names and the axis label
COLOUR = "#0b8f82"  # at least 3:1 on white and on black
DASHES = ("none", "5 3", "2 2")
LINE = 12  # between names
MARKED = 30  # most points that are marked individually

LISTED = 12  # most names shown in a table; the rest are counted

Points = Sequence[tuple[float, float]]


class Shown:
    """Object with a one-line repr, and a small table in a notebook.

    >>> class Point(Shown):
    ...     "A place on a line."
    ...     def _repr_facts(self): return {"x": 3}
    >>> Point()
    Point(x=3)
    >>> Point()._repr_html_()
    '<table><caption><b>Point</b> A place on a line.</caption><tr><th>x</th><td>3</td></tr></table>'
    """

    def _repr_facts(self) -> Mapping[str, object]:
        """Return the facts of the line; none by default."""
        return {}

    def _repr_table(self) -> Mapping[str, object]:
        """Return the facts of the table; those of the line by default."""
        return self._repr_facts()

    def _repr_pictures(self) -> str:
        """Return escaped HTML for below the table; empty by default."""
        return ""

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self._repr_facts().items())
        return f"{type(self).__name__}({facts})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        summary = (type(self).__doc__ or "").strip().split("\n")[0]
        title = f"<b>{type(self).__name__}</b> {escape(summary)}"
        rows = ""
        for name, value in self._repr_table().items():
            text = value if isinstance(value, str) else repr(value)
            rows += f"<tr><th>{escape(str(name))}</th><td>{escape(text)}</td></tr>"
        return f"<table><caption>{title}</caption>{rows}</table>{self._repr_pictures()}"


class ShownRecord(Shown):
    """Dataclass that shows its fields; its repr is the dataclass's own."""

    def _repr_facts(self) -> Mapping[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


def line_chart(lines: Mapping[str, Points], *, x: str, y: str) -> str:
    """Return lines as SVG: values of y from 0 to 1, shown in percent, against x.

    lines: points by the name of the line, x ascending; x, y: labels of the axes. Values beyond 0
    and 1 are drawn on the border.

    >>> chart = line_chart({"local": [(1, 1.0), (2, 0.5)]}, x="tasks", y="accuracy")
    >>> '<polyline points="44.0,10.0 292.0,65.0"' in chart
    True
    """
    every = [place for points in lines.values() for place, _ in points]
    first, last = (min(every), max(every)) if every else (0.0, 1.0)

    def at(place: float, value: float) -> tuple[float, float]:
        share = (place - first) / (last - first) if last > first else 0.5
        down = 1 - min(max(value, 0.0), 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT), TOP + down * (HEIGHT - TOP - BOTTOM)

    placed = {name: [at(*point) for point in points] for name, points in lines.items() if points}
    dashes = dict(zip(lines, cycle(DASHES), strict=False))
    drawn = [_line(points, dashes[name]) for name, points in placed.items()]
    free = float("-inf")  # names beside the ends of lines, from the top down, without overlap
    for name, points in sorted(placed.items(), key=lambda line: line[1][-1][1]):
        end, height = points[-1]
        free = max(height + 4, free)
        drawn.append(_label(end + 7, free, name, "start"))
        free += LINE
    label = escape(f"{y} against {x}", quote=True)
    style = "max-width: 100%; color: inherit; background: none"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" style="{style}" font-size="11" font-family="sans-serif">'
        f"{_axes(x, first, last)}{''.join(drawn)}</svg>"
    )


def _axes(x: str, first: float, last: float) -> str:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    middle = (TOP + floor) / 2
    grid = "".join(
        f'<line x1="{LEFT}" x2="{right}" y1="{at}" y2="{at}" stroke="currentColor" opacity="0.3"/>'
        f"{_label(LEFT - 5, at + 4, said, 'end')}"
        for at, said in ((TOP, "100 %"), (middle, "50"), (floor, "0"))
    )
    ends = "" if first == last else _label(right, floor + 13, f"{last:g}", "end")
    below = _label((LEFT + right) / 2, floor + 26, x, "middle")
    return grid + _label(LEFT, floor + 13, f"{first:g}", "start") + ends + below


def _line(points: Points, dashes: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = points if len(points) <= MARKED else points[-1:]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{COLOUR}"/>' for x, y in marks)
    line = (
        f'<polyline points="{path}" fill="none" stroke="{COLOUR}" stroke-width="2" '
        f'stroke-dasharray="{dashes}"/>'
    )
    return line + dots


def _label(x: float, y: float, said: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">'
        f"{escape(said)}</text>"
    )


def listed(names: Sequence[object]) -> str:
    """Return comma-separated names, and the number of names left out."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(str(name) for name in names[:LISTED]) + more
