"""Progress display: a spinner, bars of stages, and the lines of a benchmark."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from evergraph.experiments.progress import Progress, progress_bar

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Bench
    from evergraph.experiments.bench.worker import Event

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


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner on stderr, if it is a terminal."""
    with Console(stderr=True).status(text):
        yield


class StageProgress(Progress):
    """A bar for each stage, on stderr; in a log, a line at most every ten seconds.

    units: what is counted, by stage; a stage that is not in ``STAGES`` is a file being fetched.
    """

    def __init__(self, units: dict[str, str]) -> None:
        self._units = units
        self._console = Console(stderr=True)
        self._said = time.monotonic()
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
        if not self._console.is_terminal and now - self._said >= 10 and done:
            self._said = now
            left = (now - began) * (total - done) / done
            sys.stderr.write(f"{name}: {done:,} of {total:,} {unit}, about {left:.0f} s left\n")
            sys.stderr.flush()


class BenchProgress(Progress):
    """Shows the progress of a benchmark on stderr: a line for every finished seed.

    On a terminal there is a bar below. ``notes`` collects the log messages of the runs, without
    duplicates.
    """

    def __init__(self, bench: Bench) -> None:
        self.notes: dict[str, None] = {}
        self._total, self._ended, self._kept = bench.size, 0, 0
        self._shares: dict[tuple[Path, int], float] = {}  # learned of every seed that has begun
        self._started = time.monotonic()
        self._console = Console(stderr=True)
        self._bar = progress_bar(self._console, "{task.fields[account]}")
        self._row = self._bar.add_task("learning", total=self._total, account=self._account())

    def on_event(self, event: Event) -> None:
        """Update the display with an event."""
        folder, far = event.job.folder, event.progress
        if event.kind == "failed" and folder not in {begun for begun, _ in self._shares}:
            self._total -= len(event.job.config.seeds) - 1  # its search failed: none of them runs
        ended = event.kind in ("done", "failed", "kept")
        share = 1.0 if ended else 0.0 if far is None else far.done / far.tasks
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
        worked, rest = done - self._kept, self._total - done
        if worked <= 0 or rest <= 0:
            return text
        left = (time.monotonic() - self._started) * rest / worked
        return f"{text}, about {span(left)} left"


def _sentence(event: Event) -> str:
    what = f"seed {event.seed}" if event.job.trial is None else f"{event.job.trial}, validation"
    name, found = f"{event.job}, {what}", event.progress
    if event.failure is not None:
        return f"{name} failed: {event.failure.error}"
    if found is None:
        return name
    return (
        f"{name}: AA {100 * found.accuracy:.1f}, AF {100 * found.forgetting:.1f} local, "
        f"{span(found.seconds)}"
    )


def span(seconds: float) -> str:
    """Format a time in a readable unit.

    >>> span(7.31), span(95), span(7300)
    ('7.3 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
