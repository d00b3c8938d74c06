"""Display in a notebook: one line and a small table.

Importing this module loads neither torch nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape

MAX_NAMES_LISTED = 12  # most names shown in a table; the rest are counted


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


def listed(names: Sequence[object]) -> str:
    """Return comma-separated names, and the number of names left out."""
    more = f" and {len(names) - MAX_NAMES_LISTED} more" if len(names) > MAX_NAMES_LISTED else ""
    return ", ".join(str(name) for name in names[:MAX_NAMES_LISTED]) + more
