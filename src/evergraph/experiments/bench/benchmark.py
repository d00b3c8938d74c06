"""Run a benchmark: search hyper-parameters if needed, then learn every seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from evergraph.core.errors import EvergraphError, ResultsError
from evergraph.core.file_lock import FileLock
from evergraph.core.plugins import load_plugins
from evergraph.core.written_aside import results_written
from evergraph.experiments.bench.config import BenchConfig, SearchConfig
from evergraph.experiments.bench.jobs import (
    BENCH,
    Choice,
    Job,
    Trial,
    check_folder,
    check_jobs,
    choose,
    expand,
    trials,
)
from evergraph.experiments.bench.pool import Event, WorkerPool, run_work
from evergraph.experiments.bench.worker import Failure, SeedProgress, Work, read_progress
from evergraph.experiments.build import resolved
from evergraph.experiments.store import FAILURE, ResultStore, locked, write_whole

_TOLD = (
    "average_accuracy", "average_forgetting", "coverage_ratio", "memory", "seconds",
    "peak_rss_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Outcome of one row of a benchmark: the contents of ``result.json``, or why there are none.

    ``job`` has the chosen hyper-parameters if it was searched; ``choice`` is that search.
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
    """Event of one seed of one row, see ``Event``; ``kept`` means that it had already finished.

    ``trial``: the combination being tried; None outside a search.
    """

    job: Job
    seed: int
    trial: str | None
    kind: Literal["started", "task", "done", "failed", "kept"]
    progress: SeedProgress | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


class Scheduler:
    """Distributes work, and records failures by folder.

    on_event: called with every event. pool: does the work; local processes by default.
    """

    def __init__(
        self, on_event: Callable[[BenchEvent], None], pool: WorkerPool | None = None
    ) -> None:
        self._tell = on_event
        self._pool = pool
        self._failures: dict[Path, Failure] = {}

    def learn(self, runs: Sequence[tuple[Job, str | None]], workers: int) -> None:
        """Do the remaining work of some runs, each with the name of its trial, if it is one."""
        known = {job.folder: (job, trial) for job, trial in runs}
        work = []
        for job, trial in runs:
            with results_written(job.folder):
                (job.folder / FAILURE).unlink(missing_ok=True)  # it is retried
            seeds = {seed: read_progress(job.folder, seed) for seed in job.config.seeds}
            todo = [seed for seed, far in seeds.items() if far is None or not far.finished]
            if ResultStore(job.folder).finished() is not None:
                todo = []
            elif not todo:  # only the result is missing, which learning a seed makes
                todo = [job.config.seeds[0]]
            work += [Work(job.config.to_dict(), seed, job.folder) for seed in todo]
            for seed in seeds.keys() - todo:
                self._tell(BenchEvent(job, seed, trial, "kept", seeds[seed]))

        def on_event(event: Event) -> None:
            job, trial = known[event.work.folder]
            if event.failure is not None:
                self._keep_failure(job, event.failure)
            seed, kind, far = event.work.seed, event.kind, event.progress
            self._tell(BenchEvent(job, seed, trial, kind, far, event.failure, event.notes))

        pool = run_work if self._pool is None else self._pool
        pool(work, workers=workers, on_event=on_event)

    def choice(self, job: Job, tried: list[Trial], options: SearchConfig) -> Choice | None:
        """Choose the best trial and claim the folder for it; None if that fails."""
        for trial in tried:
            if failure := self._failures.get(trial.job.folder):
                # A choice among the successful trials would depend on which ones failed.
                said = f"the search stopped at {trial.name}: {failure.error}"
                self._fail(job, Failure(said, failure.type, failure.traceback))
                return None
        results = [(trial, ResultStore(trial.job.folder).finished()) for trial in tried]
        made = choose(job, [(t, result) for t, result in results if result is not None], options)
        try:
            claim(made.job)
        except EvergraphError as error:
            self._fail(job, Failure.of(error))
            return None
        made.keep()
        return made

    def row(self, job: Job, choice: Choice | None) -> Row:
        """Return the outcome of a job."""
        final, failure = job if choice is None else choice.job, self._failures.get(job.folder)
        result = None if failure else ResultStore(final.folder).finished()
        return Row(final, result, failure, choice)

    def _fail(self, job: Job, failure: Failure) -> None:
        self._keep_failure(job, failure)
        self._tell(BenchEvent(job, job.config.seeds[0], None, "failed", failure=failure))

    def _keep_failure(self, job: Job, failure: Failure) -> None:
        self._failures.setdefault(job.folder, failure)
        text = json.dumps(asdict(failure), indent=1)
        with suppress(ResultsError):  # perhaps a full disk; the row has the failure too
            write_whole(job.folder / FAILURE, text.encode())


def claim(job: Job) -> None:
    """Claim a job's folder for its configuration."""
    ResultStore(job.folder).open(resolved(job.config), resume=True)


@dataclass(frozen=True)
class Bench:
    """Benchmark that is ready to run: checked, with its folders claimed.

    ``trials`` are those of rows with a search, by folder. ``lock`` keeps a second benchmark out of
    the folder until this one has run.
    """

    jobs: list[Job]
    trials: dict[Path, list[Trial]]
    options: SearchConfig
    lock: FileLock | None = None

    @property
    def size(self) -> int:
        """Number of seeds to learn, including those of searches."""
        return sum(len(job.config.seeds) for job in self.jobs) + sum(map(len, self.trials.values()))


def open_bench(
    config: BenchConfig,
    *,
    out: Path,
    resume: bool = False,
    over: Mapping[str, Any] | None = None,
    search: bool = False,
) -> Bench:
    """Check everything and claim the folders; raise errors before any work starts.

    out: the parent folder of results. resume: whether to continue from the results in it. over,
    search: see ``expand``.
    """
    load_plugins(config.plugins)
    jobs = expand(config, out=out, over=over, search=search)
    searched = {j.folder: trials(j, config.search) for j in jobs if j.grid}
    ready = [job for job in jobs if not job.grid]
    ready += [trial.job for tried in searched.values() for trial in tried]
    check_jobs(ready)
    check_folder(out, resume=resume)
    lock = locked(out, "a benchmark is being run")
    check_folder(out, resume=resume)  # another process may have been first
    if not (out / BENCH).exists():
        write_whole(out / BENCH, config.to_toml().encode())  # marks the folder as a benchmark's
    for job in ready:
        claim(job)
    write_whole(out / BENCH, config.to_toml().encode())
    return Bench(jobs, searched, config.search, lock)


def run_bench(
    bench: Bench,
    *,
    workers: int,
    on_event: Callable[[BenchEvent], None] = lambda event: None,
    pool: WorkerPool | None = None,
) -> list[Row]:
    """Do the remaining work, and return every row; a failure does not stop the others.

    pool: does the work; processes of this machine by default.
    """
    scheduler = Scheduler(on_event, pool)
    plain: list[tuple[Job, str | None]] = [(job, None) for job in bench.jobs if not job.grid]
    searches = [(trial.job, trial.name) for tried in bench.trials.values() for trial in tried]
    try:
        # Rows without a search use the workers that the last trials leave free.
        scheduler.learn([*searches, *plain], workers)
        chosen = {
            job.folder: scheduler.choice(job, bench.trials[job.folder], bench.options)
            for job in bench.jobs
            if job.grid
        }
        scheduler.learn([(c.job, None) for c in chosen.values() if c is not None], workers)
        return [scheduler.row(job, chosen.get(job.folder)) for job in bench.jobs]
    finally:
        if bench.lock is not None:
            bench.lock.close()
