"""Who gives a benchmark's work out and keeps account of what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evergraph.core.errors import EvergraphError, ResultsError
from evergraph.core.written_aside import results_written
from evergraph.experiments.bench.config import SearchConfig
from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.bench.pool import Event, Pool, run_work
from evergraph.experiments.bench.progress import read_progress
from evergraph.experiments.bench.records import BenchEvent, Row
from evergraph.experiments.bench.search import Choice, Trial, choose
from evergraph.experiments.bench.worker import Failure, Work
from evergraph.experiments.build import resolved
from evergraph.experiments.store import FAILURE, ResultStore, write_whole


class Scheduler:
    """Gives work out, and keeps account of what failed, by folder.

    on_event: told all that happens. pool: who does the work; processes here unless given.
    """

    def __init__(self, on_event: Callable[[BenchEvent], None], pool: Pool | None = None) -> None:
        self._tell = on_event
        self._pool = pool
        self._failures: dict[Path, Failure] = {}

    def learn(self, runs: Sequence[tuple[Job, Trial | None]], workers: int) -> None:
        """Do all that is left to do of some runs, each with the trial it is, if it is one."""
        known = {job.folder: (job, trial) for job, trial in runs}
        work = []
        for job, trial in runs:
            with results_written(job.folder):
                (job.folder / FAILURE).unlink(missing_ok=True)  # it is tried again
            todo = _todo(job)
            self._tell_kept(job, trial, {unit.seed for unit in todo})
            work += todo

        def on_event(event: Event) -> None:
            job, trial = known[event.work.folder]
            if event.failure is not None:
                self._keep_failure(job, event.failure)
            self._tell(_told(job, trial, event))

        pool = run_work if self._pool is None else self._pool
        pool(work, workers=workers, on_event=on_event)

    def choice(self, job: Job, tried: list[Trial], options: SearchConfig) -> Choice | None:
        """Choose the best trial and claim the folder for it; None if that cannot be done."""
        for trial in tried:
            if failure := self._failures.get(trial.job.folder):
                # A choice among those that went well would hang on what happened to go wrong.
                said = f"the search stopped at {trial.name}: {failure.error}"
                self._fail(job, Failure(said, failure.type, failure.traceback))
                return None
        results = [(trial, _result(trial.job)) for trial in tried]
        made = choose(job, [(t, result) for t, result in results if result is not None], options)
        try:
            claim(made.job)
        except EvergraphError as error:
            self._fail(job, Failure.of(error))
            return None
        made.keep()
        return made

    def row(self, job: Job, choice: Choice | None) -> Row:
        """Return what came of a job."""
        final = job if choice is None else choice.job
        failure = self._failures.get(job.folder)
        return Row(final, None if failure else _result(final), failure, choice)

    def _fail(self, job: Job, failure: Failure) -> None:
        self._keep_failure(job, failure)
        self._tell(BenchEvent(job, job.config.seeds[0], None, "failed", failure=failure))

    def _keep_failure(self, job: Job, failure: Failure) -> None:
        self._failures.setdefault(job.folder, failure)
        text = json.dumps(asdict(failure), indent=1)
        with suppress(ResultsError):  # a full disk, perhaps what failed: the row says it too
            write_whole(job.folder / FAILURE, text.encode())

    def _tell_kept(self, job: Job, trial: Trial | None, todo: Iterable[int]) -> None:
        for seed in set(job.config.seeds) - set(todo):
            progress = read_progress(job.folder, seed)
            self._tell(BenchEvent(job, seed, _name(trial), "kept", progress=progress))


def claim(job: Job) -> None:
    """Claim a job's folder for its configuration."""
    ResultStore(job.folder).open(resolved(job.config), resume=True)


def _result(job: Job) -> dict[str, Any] | None:
    return ResultStore(job.folder).finished()


def _todo(job: Job) -> list[Work]:
    """Return the seeds that are still to be learned; the first if only the result is missing."""
    if _result(job) is not None:
        return []
    seeds = job.config.seeds
    known = {seed: read_progress(job.folder, seed) for seed in seeds}
    open_seeds = [s for s, progress in known.items() if progress is None or not progress.finished]
    return [Work(job.config.to_dict(), seed, job.folder) for seed in open_seeds or seeds[:1]]


def _told(job: Job, trial: Trial | None, event: Event) -> BenchEvent:
    return BenchEvent(
        job=job,
        seed=event.work.seed,
        trial=_name(trial),
        kind=event.kind,
        progress=event.progress,
        failure=event.failure,
        notes=event.notes,
    )


def _name(trial: Trial | None) -> str | None:
    return None if trial is None else trial.name
