"""What a benchmark tells: what happens while it runs, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.bench.progress import Progress
from evergraph.experiments.bench.search import Choice
from evergraph.experiments.bench.worker import Failure

_TOLD = (
    "average_accuracy", "average_forgetting", "coverage_ratio", "memory", "seconds",
    "peak_rss_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What came of one row of a benchmark: a result, or the reason why there is none.

    Attributes:
        job: the row, with the chosen hyper-parameters where it was searched.
        result: what ``result.json`` says.
        failure: why there is none.
        choice: the search that led to it.
    """

    job: Job
    result: dict[str, Any] | None
    failure: Failure | None
    choice: Choice | None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; accuracies are fractions."""
        job = self.job
        row: dict[str, Any] = {
            "label": job.label,
            "dataset": job.dataset,
            "setting": job.setting,
            "folder": str(job.folder),
            "state": "done" if self.failure is None else "failed",
        }
        if self.failure is not None:
            return row | {"error": self.failure.error, "type": self.failure.type}
        found = {key: (self.result or {}).get(key) for key in _TOLD}
        return row | found | {"chosen": None if self.choice is None else self.choice.chosen.values}


@dataclass(frozen=True)
class BenchEvent:
    """Something that happened to one seed of one row.

    Attributes:
        job: the row.
        seed: the repeat.
        trial: the combination that is tried; None when it is no search.
        kind: see ``Event``; ``kept`` was finished before.
        progress, failure, notes: see ``Event``.
    """

    job: Job
    seed: int
    trial: str | None
    kind: Literal["started", "task", "done", "failed", "kept"]
    progress: Progress | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
