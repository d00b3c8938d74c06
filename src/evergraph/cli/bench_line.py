"""What a benchmark's table shows of one row while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergraph.experiments.bench.progress import Progress
    from evergraph.experiments.bench.records import BenchEvent

STATES = ("running", "searching", "failed", "waiting", "done")


@dataclass
class Line:
    """What is known of one row of the benchmark.

    Attributes:
        seeds: how many are to be learned.
        trials: how many combinations are to be tried first.
        tried: how many of them have been.
        running: seeds being learned.
        done: seeds that are learned.
        progress: how far each seed is.
        failed: whether anything of it did.
    """

    seeds: int
    trials: int
    tried: int = 0
    running: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    progress: dict[int, Progress] = field(default_factory=dict)
    failed: bool = False

    @property
    def state(self) -> str:
        """How far the row is; the first word is one of ``STATES``."""
        if self.failed:
            return "failed"
        if len(self.done) == self.seeds:
            return "done"
        if not self.running:
            begun = 0 < self.tried < self.trials
            return f"searching {self.tried} of {self.trials}" if begun else "waiting"
        known = [self.progress[seed] for seed in self.running if seed in self.progress]
        last = min(known, key=lambda progress: progress.done, default=None)
        if last is None:
            return "running task 1"
        return f"running task {min(last.done + 1, last.tasks)} of {last.tasks}"

    @property
    def under_way(self) -> float:
        """How much of the seeds being learned is done, in seeds."""
        known = [self.progress[seed] for seed in self.running if seed in self.progress]
        return sum(progress.done / progress.tasks for progress in known)

    def cells(self) -> tuple[str, ...]:
        """Return the row from its seeds on."""
        known = list(self.progress.values())
        seconds = sum(progress.seconds for progress in known)
        return (
            f"{len(self.done)}/{self.seeds}",
            self.state,
            _percent(progress.accuracy for progress in known),
            _percent(progress.forgetting for progress in known),
            span(seconds) if known else "-",
        )

    def follow(self, event: BenchEvent) -> None:
        """Take in what happened to a seed or to a trial."""
        ended = event.kind in ("done", "failed", "kept")
        self.failed |= event.kind == "failed"
        if event.trial is not None:
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


def _percent(values: Iterable[float]) -> str:
    known = list(values)
    return f"{100 * sum(known) / len(known):.1f}" if known else "-"


def span(seconds: float) -> str:
    """Return a time as people say it.

    >>> span(7.31), span(95), span(7300)
    ('7.3 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
