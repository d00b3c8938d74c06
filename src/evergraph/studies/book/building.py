"""Build what is missing of the book, and write a row as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from evergraph.core.errors import ConfigurationError, ResultsError
from evergraph.experiments.bench.benchmark import Bench, run_bench
from evergraph.experiments.bench.checks import check_jobs
from evergraph.experiments.bench.config import SearchConfig
from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.bench.pool import Limits, run_work
from evergraph.experiments.bench.records import BenchEvent, Row
from evergraph.experiments.bench.scheduler import claim
from evergraph.experiments.build import parts_used, resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.dotted import flat
from evergraph.experiments.store import ResultStore, locked
from evergraph.studies.book.making import failed_row, placeless, row_of
from evergraph.studies.book.row import read_row


@dataclass(frozen=True)
class Building:
    """A book of which the missing rows can be built: all is checked, the folders are claimed.

    Attributes:
        bench: the rows that are missing.
        book: where rows go.
        kept: how many are there already.
        commit: of the code.
    """

    bench: Bench
    book: Path
    kept: int
    commit: str

    def run(
        self,
        *,
        workers: int,
        limit: float | None = None,
        minutes: float | None = None,
        on_event: Callable[[BenchEvent], None] = lambda event: None,
    ) -> list[Row]:
        """Build, and return what came of every row; one out of time has neither result nor failure.

        limit: the most seconds for one seed. minutes: after which to stop, whatever is left.
        """
        until = None if minutes is None else monotonic() + 60 * minutes
        pool = partial(run_work, limits=Limits(limit, until))

        def follow(event: BenchEvent) -> None:
            if event.kind in ("done", "kept"):
                self._write_finished(event.job)
            on_event(event)

        rows = run_bench(self.bench, workers=workers, on_event=follow, pool=pool)
        for row in rows:
            if row.failure is not None:
                failed_row(row.job, row.failure.error, commit=self.commit).write(self.book)
        return rows

    def _write_finished(self, job: Job) -> None:
        result = ResultStore(job.folder).finished()
        if result is not None:
            names = {"dataset": job.dataset, "label": job.label, "commit": self.commit}
            row_of(result, job.folder, **names).write(self.book)


def missing(jobs: Sequence[Job], book: Path, *, retry: bool = False) -> list[Job]:
    """Return the jobs of which a book has no row, learned with the same configuration.

    retry: whether rows that say why they failed are missing too.
    """
    return [job for job in jobs if not _there(job, book, retry=retry)]


def open_book(
    jobs: Sequence[Job], *, out: Path, book: Path, commit: str, retry: bool = False
) -> Building:
    """Check what is missing and claim its folders; what is wrong is said before any work starts.

    Args:
        jobs: what the book is to hold.
        out: where runs lie, those that were begun included.
        book: where rows lie: one that is there is not built again.
        commit: of the code.
        retry: see ``missing``.
    """
    todo = missing(jobs, book, retry=retry)
    check_jobs(todo)
    lock = locked(out, "the book is being built")
    for job in todo:
        claim(job)
    return Building(Bench(todo, {}, SearchConfig(), lock), book, len(jobs) - len(todo), commit)


def _there(job: Job, book: Path, *, retry: bool) -> bool:
    path = book / job.dataset / job.setting / f"{job.label}.json"
    if not path.exists():
        return False
    try:
        row = read_row(path)
        # What an earlier version did not know, it did as the defaults say.
        learned = resolved(RunConfig.of(row.config))
    except (ResultsError, ConfigurationError):
        return False  # damaged, or of parameters that are gone: it is built again
    asked = placeless(resolved(job.config))
    if "training" not in parts_used(asked):  # a closed form: how it would be trained is no matter
        learned = learned.model_copy(update={"training": asked.training})
    same = not differences(learned.to_dict(), asked.to_dict())
    return same and not (retry and row.failure is not None)


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return where two configurations differ, by dotted key, but for where they were run.

    >>> differences({"seeds": [0], "device": "cpu"}, {"seeds": [0, 1], "device": "cuda"})
    {'seeds': ([0], [0, 1])}
    """
    left, right = flat(ours), flat(theirs)
    return {
        key: (left.get(key), right.get(key))
        for key in sorted(left.keys() | right.keys())
        if key not in ("device", "plugins") and left.get(key) != right.get(key)
    }
