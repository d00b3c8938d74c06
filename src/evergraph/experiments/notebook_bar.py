"""A bar in a notebook: one line that is written over, and that says at the end how long it took.

Importing this module loads neither torch nor IPython.
"""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, NewType

Row = NewType("Row", int)
PAUSE = 0.1  # seconds between two drawings: a notebook keeps every message that it is sent


def in_notebook() -> bool:
    """Whether this is Jupyter, Colab or the like, rather than a terminal or a script."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return any(each.__name__ == "ZMQInteractiveShell" for each in type(shell).__mro__)


class Line:
    """A line of text, and how far it is where it is not done: HTML and plain text.

    >>> Line("tem on wordnet", 0.25, "about 9 s left")
    tem on wordnet   25 %, about 9 s left
    >>> Line("a < b", None, "12 s")._repr_html_()
    '<div>a &lt; b &ensp;12 s</div>'
    """

    def __init__(self, text: str, share: float | None, time: str) -> None:
        self.text, self.share, self.time = text, share, time

    def __repr__(self) -> str:
        said = "" if self.share is None else f" {100 * self.share:.0f} %, "
        return f"{self.text}  {said}{self.time}"

    def _repr_html_(self) -> str:
        text = escape(self.text)
        if self.share is None:
            return f"<div>{text} &ensp;{self.time}</div>"
        bar = f'<progress value="{self.share:.3f}" max="1" style="width: 12em"></progress>'
        return f"<div>{bar} {100 * self.share:.0f} %, {self.time} &ensp;{text}</div>"


class NotebookBar:
    """As much of ``rich.progress.Progress`` as ``RunProgress`` asks for, with a single row.

    rich draws in notebooks with ipywidgets alone, and leaves nothing behind in a saved one.
    """

    def __init__(self) -> None:
        self._text, self._done, self._total = "", 0.0, 1.0
        self._begun = self._drawn = 0.0
        self._display: Any = None

    def add_task(self, description: str, total: float) -> Row:
        """Say what the line says, and how much there is to do."""
        self._text, self._total = description, total
        return Row(0)

    def start(self) -> None:
        """Show the line."""
        from IPython.display import display

        self._begun = self._drawn = time.monotonic()
        self._display = display(self._line(), display_id=True)

    def advance(self, row: Row, advance: float) -> None:
        """Move on by some of the total."""
        self._done += advance
        self._draw()

    def update(self, row: Row, *, description: str, completed: float) -> None:
        """Say something else, and how much is done."""
        self._text, self._done = description, completed
        self._draw()

    def stop(self) -> None:
        """Leave the line as it is to stay: without a bar where everything is done."""
        self._display.update(self._line(over=True))

    def _draw(self) -> None:
        if time.monotonic() - self._drawn >= PAUSE:
            self._drawn = time.monotonic()
            self._display.update(self._line())

    def _line(self, *, over: bool = False) -> Line:
        share, passed = self._done / self._total, time.monotonic() - self._begun
        if over and share > 1 - 1e-6:
            return Line(self._text, None, f"{passed:.1f} s")
        if over:
            return Line(self._text, share, f"stopped after {passed:.1f} s")
        left = f"about {passed * (1 - share) / share:.0f} s left" if share > 0 else "beginning"
        return Line(self._text, share, left)
