"""What is printed: tables for people, one JSON object for programs, and progress on stderr.

Printing does not fail on a limited terminal: characters that it lacks are replaced.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from evergraph.experiments.progress import Progress, progress_bar

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Bench
    from evergraph.experiments.bench.worker import Event
    from evergraph.reports.runs import Finished
    from evergraph.reports.tables import Table

ALL_DATA = "all data"  # which may occur in a column of numbers
MIN_PROSE_WIDTH = 24  # characters; sentences are hard to read in a narrower column
STAGES = {
    "nodes": "reading nodes",
    "edges": "reading edges",
    "sort": "sorting edges",
    "checksum": "computing checksums",
    "ingest": "learning",
    "copy": "copying",
    "verify": "verifying",
    "split": "splitting",
    "embed": "embedding",
}
UNITS = {"sort": "pairs", "checksum": ""}  # for stages without a unit of their own


def never_fail() -> None:
    """Make stdout and stderr replace characters that they cannot encode, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line; unlike ``typer.echo``, which writes UTF-8 even to an ASCII terminal."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


@contextmanager
def stops_with(sentence: str) -> Iterator[None]:
    """Print a sentence and exit with code 130 if the command is interrupted meanwhile."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: {sentence}", err=True)
        raise typer.Exit(130) from None


def print_json(value: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout."""
    say(json.dumps(value, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout; the first column is text, the rest are aligned right if numbers.

    Its width is that of the terminal, or ``$COLUMNS`` if output is piped; without either, it is as
    wide as it needs to be. Words are not cut: columns that do not fit go into a second table below,
    which repeats the first columns.
    """
    import rich.table
    from rich.console import Console

    console = Console()
    head, body = list(columns), [list(row) for row in rows]
    numeric = [
        column > 0
        and all(row[column][:1] in "-0123456789" or row[column] == ALL_DATA for row in body)
        for column in range(len(head))
    ]
    widths = [_widest(cells) for cells in zip(head, *body, strict=True)]
    min_widths = []
    for column, (name, *cells) in enumerate(zip(head, *body, strict=True)):
        words = cells if numeric[column] else [word for cell in cells for word in cell.split()]
        min_widths.append(_widest([*name.split(), *words]))
    if not numeric[-1]:
        min_widths[-1] = max(min_widths[-1], min(widths[-1], MIN_PROSE_WIDTH))
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console = Console(width=_needed(widths))  # a log has no width to wrap at
    keys = 1  # names before the first number
    while keys < len(head) - 1 and not numeric[keys]:
        keys += 1
    for part in _parts(min_widths, keys, console.width):
        table = rich.table.Table(title=title or None, title_justify="left")
        # Words are folded where even the narrowest columns do not fit.
        fits = _needed([min_widths[column] for column in part]) <= console.width
        for column in part:
            side: Literal["right", "left"] = "right" if numeric[column] else "left"
            no_wrap = fits and min_widths[column] == widths[column]
            table.add_column(head[column], justify=side, no_wrap=no_wrap, overflow="fold")
        for row in body:
            table.add_row(*(row[column] for column in part))
        console.print(table)
        title = ""


def show_table(table: Table) -> None:
    """Print a table of a report, with its caption above it."""
    print_table(table.headings, table.texts, table.caption)


def show_runs(runs: Sequence[Finished]) -> None:
    """Print what runs found: as their protocols report it, if they have any, and in full."""
    from evergraph.reports.run_tables import comparison, headline_table
    from evergraph.reports.runs import groups_of_one

    for table in (headline_table(groups_of_one(runs)), comparison(runs)):
        if table is not None:
            show_table(table)


def _widest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1  # a rule and two spaces each, and a last rule


def _parts(min_widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Return which columns are printed side by side; every part repeats the first ones.

    >>> _parts([4, 6, 6, 6], 1, 24), _parts([4, 6, 6, 6], 1, 40)
    ([[0, 1], [0, 2], [0, 3]], [[0, 1, 2, 3]])
    """
    first = list(range(keys))
    parts = [[*first]]
    for column in range(keys, len(min_widths)):
        if (
            len(parts[-1]) > keys
            and _needed([min_widths[other] for other in (*parts[-1], column)]) > room
        ):
            parts.append([*first])
        parts[-1].append(column)
    return parts


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner on stderr, if it is a terminal."""
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


class StageProgress(Progress):
    """A bar for each stage, on stderr; in a log, a line at most every ten seconds.

    units: what is counted, by stage; a stage that is not in ``STAGES`` is a file being fetched.
    """

    def __init__(self, units: dict[str, str]) -> None:
        from rich.console import Console

        self._units = units
        self._console = Console(stderr=True)
        self._last_line = time.monotonic()
        self._rows: dict[str, tuple[Any, float]] = {}
        counted = "{task.completed:,} of {task.total:,} {task.fields[unit]}"
        self._bar = progress_bar(self._console, counted)

    def on_progress(self, stage: str, done: int, total: int | None) -> None:
        """Move the bar of a stage, and add it if it is new.

        total: None if unknown; then only the count so far is shown.
        """
        now, total = time.monotonic(), total or done
        name = STAGES.get(stage, stage)
        unit = self._units.get(stage, UNITS.get(stage, "bytes"))
        if stage not in self._rows:
            row = self._bar.add_task(name, total=total, unit=unit)
            self._rows[stage] = (row, now)
        row, began = self._rows[stage]
        self._bar.update(row, completed=done, total=total)
        if not self._console.is_terminal and now - self._last_line >= 10 and done:
            self._last_line = now
            left = (now - began) * (total - done) / done
            sys.stderr.write(f"{name}: {done:,} of {total:,} {unit}, about {left:.0f} s left\n")
            sys.stderr.flush()


class BenchProgress(Progress):
    """Shows the progress of a benchmark on stderr: a line for every finished seed.

    On a terminal there is a bar below. ``notes`` collects the log messages of the runs, without
    duplicates.
    """

    def __init__(self, bench: Bench) -> None:
        from rich.console import Console

        self.notes: dict[str, None] = {}
        self._total = bench.size
        self._ended = 0
        self._kept = 0
        self._shares: dict[tuple[Path, int], float] = {}  # learned of every seed that has begun
        self._started = time.monotonic()
        self._console = Console(stderr=True)
        self._bar = progress_bar(self._console, "{task.fields[account]}")
        self._row = self._bar.add_task("learning", total=self._total, account=self._account())

    def on_event(self, event: Event) -> None:
        """Update the display with an event."""
        folder, progress = event.job.folder, event.progress
        if event.kind == "failed" and folder not in {begun for begun, _ in self._shares}:
            self._total -= len(event.job.config.seeds) - 1  # its search failed: none of them runs
        ended = event.kind in ("done", "failed", "kept")
        share = 0.0
        if ended:
            share = 1.0
        elif progress is not None:
            share = progress.done / progress.tasks
        self._shares[folder, event.seed] = share
        self._ended += ended
        self._kept += event.kind == "kept"
        self.notes |= dict.fromkeys(event.notes)
        done = sum(self._shares.values())
        self._bar.update(self._row, completed=done, total=self._total, account=self._account())
        if event.kind in ("done", "failed") and self._console.is_terminal:
            self._bar.console.print(_sentence(event), markup=False)  # stays above the bar
        elif event.kind in ("done", "failed"):
            sys.stderr.write(f"{_sentence(event)}; {self._account()}\n")
            sys.stderr.flush()

    def _account(self) -> str:
        """Return how much is done, and the estimated time left."""
        text = f"{self._ended} of {self._total} done"
        done = sum(self._shares.values())
        learned, unlearned = done - self._kept, self._total - done
        if learned <= 0 or unlearned <= 0:
            return text
        left = (time.monotonic() - self._started) * unlearned / learned
        return f"{text}, about {span(left)} left"


def _sentence(event: Event) -> str:
    subject = f"seed {event.seed}" if event.job.trial is None else f"{event.job.trial}, validation"
    name, progress = f"{event.job}, {subject}", event.progress
    if event.failure is not None:
        return f"{name} failed: {event.failure.error}"
    return name if progress is None else f"{name}: {progress}, {span(progress.seconds)}"


def span(seconds: float) -> str:
    """Format a time in a readable unit.

    >>> span(7.31), span(95), span(7300)
    ('7.3 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
