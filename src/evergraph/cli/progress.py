"""Progress display: a spinner, bars of stages, and the table of a benchmark."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.table import Table

from evergraph.experiments.progress import progress_bar

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Bench
    from evergraph.experiments.bench.worker import Event, SeedProgress


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner on stderr, if it is a terminal."""
    with Console(stderr=True).status(text):
        yield


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


class StageProgress:
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

    def __enter__(self) -> StageProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

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


# AA and AF are local.
COLUMNS = ("method", "dataset", "setting", "seeds", "state", "AA", "AF", "time")
_FRAME = 7  # lines of a table that are not rows

STATES = ("running", "searching", "failed", "waiting", "done")


class BenchProgress:
    """Shows the progress of a benchmark on stderr.

    On a terminal a table is updated as seeds and tasks finish; in a log a line is written for every
    finished seed. ``notes`` collects the log messages of the runs, without duplicates.
    """

    def __init__(self, bench: Bench) -> None:
        self.notes: dict[str, None] = {}
        self._lines = {
            job.names: BenchLine(len(job.config.seeds), len(bench.trials.get(job.folder, ())))
            for job in bench.jobs
        }
        self._total, self._ended, self._kept = bench.size, 0, 0
        self._started = time.monotonic()
        self._lock = Lock()  # the table is drawn by another thread
        self._console = Console(stderr=True)
        self._live = Live(
            get_renderable=self._table, console=self._console, transient=True, refresh_per_second=2
        )

    def __enter__(self) -> BenchProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Update the display with an event."""
        line = self._lines[event.job.names]
        with self._lock:
            if (
                event.kind == "failed"
                and event.job.trial is None
                and event.seed not in line.running
            ):
                self._total -= line.seeds - 1  # its search failed: none of its seeds will run
            line.follow(event)
            self._ended += event.kind in ("done", "failed", "kept")
            self._kept += event.kind == "kept"
            self.notes |= dict.fromkeys(event.notes)
        if event.kind == "failed" and self._console.is_terminal:
            self._console.print(_sentence(event), markup=False)  # stays above the table
        elif event.kind in ("done", "failed") and not self._console.is_terminal:
            sys.stderr.write(f"{_sentence(event)}; {self._account()}\n")
            sys.stderr.flush()

    def _account(self) -> str:
        """Return how much is done, and the estimated time left."""
        text = f"{self._ended} of {self._total} done"
        under_way = [far for line in self._lines.values() for far in line.under_way]
        done = self._ended + sum(far.done / far.tasks for far in under_way)
        worked, rest = done - self._kept, self._total - done
        if worked <= 0 or rest <= 0:
            return text
        left = (time.monotonic() - self._started) * rest / worked
        return f"{text}, about {span(left)} left"

    def _table(self) -> Table:
        with self._lock:
            lines = [(key, line.state, line.cells()) for key, line in self._lines.items()]
            account = self._account()
        table = Table(caption=account, caption_justify="left", box=SIMPLE, pad_edge=False)
        for column in COLUMNS:
            table.add_column(column, no_wrap=True)
        room = max(1, self._console.height - _FRAME)
        if len(lines) > room:  # running rows come first
            lines.sort(key=lambda line: STATES.index(line[1].split()[0]))
        for key, _, cells in lines[:room]:
            table.add_row(*key, *cells)
        if len(lines) > room:
            table.add_row(f"... and {len(lines) - room} more")
        return table


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


@dataclass
class BenchLine:
    """State of one row of the benchmark."""

    seeds: int  # number of seeds
    trials: int  # number of combinations to try first
    tried: int = 0  # number of combinations tried
    running: set[int] = field(default_factory=set)  # seeds being learned
    done: set[int] = field(default_factory=set)  # finished seeds
    progress: dict[int, SeedProgress] = field(default_factory=dict)  # progress of each seed
    failed: bool = False  # whether any part of the row failed

    @property
    def state(self) -> str:
        """Progress of the row; the first word is one of ``STATES``."""
        if self.failed:
            return "failed"
        if len(self.done) == self.seeds:
            return "done"
        if not self.running:
            begun = 0 < self.tried < self.trials
            return f"searching {self.tried} of {self.trials}" if begun else "waiting"
        last = min(self.under_way, key=lambda progress: progress.done, default=None)
        if last is None:
            return "running task 1"
        return f"running task {min(last.done + 1, last.tasks)} of {last.tasks}"

    @property
    def under_way(self) -> list[SeedProgress]:
        """Progress of the running seeds, as far as it is known."""
        return [self.progress[seed] for seed in self.running if seed in self.progress]

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row, from its seeds on."""
        known, means = list(self.progress.values()), ["-", "-"]
        if known:
            measures = ((p.accuracy for p in known), (p.forgetting for p in known))
            means = [f"{100 * sum(values) / len(known):.1f}" for values in measures]
        spent = span(sum(p.seconds for p in known)) if known else "-"
        return (f"{len(self.done)}/{self.seeds}", self.state, *means, spent)

    def follow(self, event: Event) -> None:
        """Update the row with an event of a seed or trial."""
        ended = event.kind in ("done", "failed", "kept")
        self.failed |= event.kind == "failed"
        if event.job.trial is not None:
            self.tried += ended
            return
        if event.progress is not None:
            self.progress[event.seed] = event.progress
        if event.kind == "started":
            self.running.add(event.seed)
        if ended:
            self.running.discard(event.seed)
        if ended and event.kind != "failed":
            self.done.add(event.seed)


def span(seconds: float) -> str:
    """Format a time in a readable unit.

    >>> span(7.31), span(95), span(7300)
    ('7.3 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
