"""A benchmark while it runs: a live table, or a line a run in a log."""

from __future__ import annotations

import sys
import time
from threading import Lock
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.table import Table

from evergraph.cli.bench_line import STATES, Line, span

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Bench
    from evergraph.experiments.bench.jobs import Job
    from evergraph.experiments.bench.records import BenchEvent

COLUMNS = ("method", "dataset", "setting", "seeds", "state", "AA", "AF", "time")  # local ones
_FRAME = 7  # lines of a table that are not rows


class BenchProgress:
    """Follows a benchmark on stderr.

    On a terminal a table changes as seeds and tasks end; in a log a line is written for every seed
    that is done. ``notes`` collects what the runs logged, each sentence once.
    """

    def __init__(self, bench: Bench) -> None:
        self.notes: dict[str, None] = {}
        self._lines = {
            _key(job): Line(len(job.config.seeds), len(bench.trials.get(job.folder, ())))
            for job in bench.jobs
        }
        self._total, self._ended, self._kept = bench.size, 0, 0
        self._started = time.monotonic()
        self._lock = Lock()  # the table is drawn by a thread of its own
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

    def on_event(self, event: BenchEvent) -> None:
        """Take in what happened."""
        line = self._lines[_key(event.job)]
        with self._lock:
            if event.kind == "failed" and event.trial is None and event.seed not in line.running:
                self._total -= line.seeds - 1  # its search failed: none of its seeds will come
            line.follow(event)
            self._ended += event.kind in ("done", "failed", "kept")
            self._kept += event.kind == "kept"
            self.notes |= dict.fromkeys(event.notes)
        self._say(event)

    def _say(self, event: BenchEvent) -> None:
        if event.kind == "failed" and self._console.is_terminal:
            self._console.print(_sentence(event), markup=False)  # above the table, and it stays
        elif event.kind in ("done", "failed") and not self._console.is_terminal:
            sys.stderr.write(f"{_sentence(event)}; {self._account()}\n")
            sys.stderr.flush()

    def _account(self) -> str:
        """Say how much is done and how long the rest will take."""
        text = f"{self._ended} of {self._total} done"
        done = self._ended + sum(line.under_way for line in self._lines.values())
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
        if len(lines) > room:  # what is going on comes first
            lines.sort(key=lambda line: STATES.index(line[1].split()[0]))
        for key, _, cells in lines[:room]:
            table.add_row(*key, *cells)
        if len(lines) > room:
            table.add_row(f"... and {len(lines) - room} more")
        return table


def _key(job: Job) -> tuple[str, str, str]:
    return job.label, job.dataset, job.setting


def _sentence(event: BenchEvent) -> str:
    what = f"seed {event.seed}" if event.trial is None else f"{event.trial}, validation"
    name = f"{event.job}, {what}"
    if event.failure is not None:
        return f"{name} failed: {event.failure.error}"
    if event.progress is None:
        return name
    found = event.progress
    return (
        f"{name}: AA {100 * found.accuracy:.1f}, AF {100 * found.forgetting:.1f} local, "
        f"{span(found.seconds)}"
    )
