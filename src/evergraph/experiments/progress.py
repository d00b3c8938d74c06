"""Progress of a run and its time left, for the command line and Python.

Importing this module loads neither torch nor rich.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from evergraph.experiments.protocol import TaskReport

PAUSE = 0.1  # seconds between two updates: a notebook stores every message


def progress_bar(console: Any, counted: str) -> Any:
    """Return rich's progress bar, which shows nothing unless the console is a terminal.

    counted: the text between the bar and the time left.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn(counted))
    left = TimeRemainingColumn(elapsed_when_finished=True)
    shown: bool = console.is_terminal
    return Progress(*columns, left, console=console, transient=True, disable=not shown)


class Progress:
    """Shows ``_bar``, which has rich's methods, inside a ``with`` block."""

    _bar: Any

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class RunProgress(Progress):
    """Progress bar over all tasks and seeds of some runs, on stderr.

    On a terminal and in a notebook the bar moves with every epoch. In a log a line is written after
    each task that all runs have learned, but at most every ten seconds, so short runs stay quiet.
    The first accuracy is written at once. epochs: per task, by the name of the run. tasks: of each
    run, or steps if they arrive in batches. unit: what one of them is called.
    """

    def __init__(
        self, *, label: str, epochs: Mapping[str, int], tasks: int, seeds: int, unit: str = "task"
    ) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, force_jupyter=False)
        self._moves = self._console.is_terminal or in_notebook()
        self._label, self._unit = label, unit
        self._epochs, self._tasks = epochs, tasks
        self._total = tasks * seeds * len(epochs)
        self._last: dict[tuple[str, int], TaskReport] = {}  # the last test of each run and seed
        self._taken = 0.0  # seconds of all tasks so far, also those learned before an interruption
        self._written_at = time.monotonic()  # the last line in a log
        bar = NotebookBar if in_notebook() else progress_bar
        self._bar = bar(self._console, "{task.percentage:3.0f} %")
        self._row = self._bar.add_task(label, total=self._total)

    def on_epoch(self, name: str, task: int, epoch: int) -> None:
        """Move the bar by an epoch of a run."""
        self._bar.update(self._row, advance=1 / self._epochs[name])

    def on_task(self, name: str, seed: int, report: TaskReport) -> None:
        """Show the accuracy after a task of a run."""
        first = not self._last
        self._last[name, seed] = report
        self._taken += sum(report.seconds.values())
        done = sum(last.index + 1 for last in self._last.values())
        accuracies = {  # of the runs that have learned this task of this seed
            run: _accuracies(last)
            for (run, its_seed), last in self._last.items()
            if (its_seed, last.index) == (seed, report.index)
        }
        summary = "AA {} local, {} global".format(*accuracies[name])
        if len(self._epochs) > 1:
            by_run = (f"{run} {local}, {union}" for run, (local, union) in accuracies.items())
            summary = f"AA local, global: {'; '.join(by_run)}"
        position = f"{self._unit} {report.index + 1}/{self._tasks}"
        text = f"{self._label}  seed {seed}  {position}  {summary}"
        self._bar.update(self._row, description=text, completed=done)
        now = time.monotonic()
        over = done == self._total
        due = now - self._written_at >= 10 and len(accuracies) == len(self._epochs)
        if self._moves or not (due or over or first):
            return
        self._written_at = now
        left = self._taken * (self._total - done) / done
        sys.stderr.write(f"{text}\n" if over else f"{text}  about {left:.0f} s left\n")
        sys.stderr.flush()


def _accuracies(report: TaskReport) -> tuple[str, str]:
    """Return local and global AA in percent, in the main measure, which comes first.

    They are summed as in the result: summed in another order, they might be rounded to another
    digit than in the table.
    """
    from evergraph.evaluation.evaluator import average_accuracy, matrix_of

    rows = [next(iter(report.rows[testing].values())) for testing in ("local", "global")]
    local, union = (f"{100 * average_accuracy(matrix_of([row])):.1f}" for row in rows)
    return local, union


def watched() -> bool:
    """Return whether output is shown live: on a terminal or in a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Return whether this runs in Jupyter, Colab or similar, not in a terminal or script."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return any(base.__name__ == "ZMQInteractiveShell" for base in type(shell).__mro__)


class ProgressLine:
    """A line of text with a progress bar until it is done, as HTML and plain text."""

    def __init__(self, text: str, share: float | None, time: str) -> None:
        self.text = text
        self.share = share  # of the work that is done; None once all is
        self.time = time

    def __repr__(self) -> str:
        percent = "" if self.share is None else f" {100 * self.share:.0f} %, "
        return f"{self.text}  {percent}{self.time}"

    def _repr_html_(self) -> str:
        text = escape(self.text)
        if self.share is None:
            return f"<div>{text} &ensp;{self.time}</div>"
        bar = f'<progress value="{self.share:.3f}" max="1" style="width: 12em"></progress>'
        return f"<div>{bar} {100 * self.share:.0f} %, {self.time} &ensp;{text}</div>"


class NotebookBar:
    """The subset of ``rich.progress.Progress`` that ``RunProgress`` uses, with a single row.

    In notebooks rich needs ipywidgets, and its output is not saved.
    """

    def __init__(self, *_: object) -> None:
        self._text = ""
        self._done = 0.0
        self._total = 1.0
        self._begun = self._drawn = 0.0
        self._display: Any = None

    def add_task(self, description: str, total: float) -> int:
        """Set the text and the total."""
        self._text, self._total = description, total
        return 0

    def start(self) -> None:
        """Show the line."""
        from IPython.display import display

        self._begun = self._drawn = time.monotonic()
        self._display = display(self._line(), display_id=True)

    def update(self, row: int, *, advance: float = 0.0, **changes: Any) -> None:
        """Change the text, ``description``, and how much is ``completed``."""
        self._text = changes.get("description", self._text)
        self._done = changes.get("completed", self._done) + advance
        if time.monotonic() - self._drawn >= PAUSE:
            self._drawn = time.monotonic()
            self._display.update(self._line())

    def stop(self) -> None:
        """Show the final line, without a bar if everything is done."""
        self._display.update(self._line(over=True))

    def _line(self, *, over: bool = False) -> ProgressLine:
        share, passed = self._done / self._total, time.monotonic() - self._begun
        if over and share > 1 - 1e-6:
            return ProgressLine(self._text, None, f"{passed:.1f} s")
        if over:
            return ProgressLine(self._text, share, f"stopped after {passed:.1f} s")
        left = f"about {passed * (1 - share) / share:.0f} s left" if share > 0 else "starting"
        return ProgressLine(self._text, share, left)
