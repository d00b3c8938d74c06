"""That something is going on, and how far each stage of a long job is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show on stderr that something is going on, where anyone is looking."""
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


STAGES = {
    "nodes": "reading nodes",
    "edges": "reading edges",
    "sort": "sorting edges",
    "checksum": "summing up",
    "ingest": "taking in",
    "copy": "copying",
    "verify": "verifying",
    "split": "splitting",
    "embed": "embedding",
}


class StageProgress:
    """A bar for each stage, on stderr; in a log, a line at most every ten seconds."""

    def __init__(self, units: dict[str, str]) -> None:
        self._units = units
        self._console = Console(stderr=True)
        self._said = time.monotonic()
        self._rows: dict[str, tuple[TaskID, float]] = {}
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,} of {task.total:,} {task.fields[unit]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> StageProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_progress(self, stage: str, done: int, total: int) -> None:
        """Move the bar of a stage, and begin it where it is not there yet."""
        now = time.monotonic()
        unit = self._units.get(stage, "pairs" if stage == "sort" else "")
        if stage not in self._rows:
            row = self._bar.add_task(STAGES[stage], total=total, unit=unit)
            self._rows[stage] = (row, now)
        row, began = self._rows[stage]
        self._bar.update(row, completed=done, total=total)
        if not self._console.is_terminal and now - self._said >= 10 and done:
            self._said = now
            left = (now - began) * (total - done) / done
            sys.stderr.write(
                f"{STAGES[stage]}: {done:,} of {total:,} {unit}, about {left:.0f} s left\n"
            )
            sys.stderr.flush()
