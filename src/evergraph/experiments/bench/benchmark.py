"""Run a benchmark: search hyper-parameters if needed, then learn every seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from evergraph.core.errors import EvergraphError, ResultsError
from evergraph.core.packages import load_plugins
from evergraph.core.safe_files import FileLock, results_written
from evergraph.experiments.bench.jobs import (
    BENCH,
    BenchConfig,
    Job,
    SearchConfig,
    check_jobs,
    choose,
    expand,
    trials,
)
from evergraph.experiments.bench.pool import Work, WorkerPool, default_workers, run_work
from evergraph.experiments.bench.worker import Event, Failure, read_progress
from evergraph.experiments.build import resolved
from evergraph.experiments.store import (
    CHOICE,
    FAILURE,
    ResultStore,
    check_free,
    locked,
    write_whole,
)

_REPORTED = (
    "average_accuracy",
    "average_forgetting",
    "coverage_ratio",
    "memory",
    "seconds",
    "peak_rss_bytes",
)


@dataclass(frozen=True)
class Row:
    """Outcome of one row of a benchmark: the contents of ``result.json``, or why there are none."""

    job: Job  # with the chosen hyper-parameters if it was searched
    result: dict[str, Any] | None
    failure: Failure | None
    search: dict[str, Any] | None = None  # that search and its choice, as in ``search.json``

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; accuracies are fractions."""
        row: dict[str, Any] = dict(
            zip(("label", "dataset", "setting"), self.job.names, strict=True)
        )
        state = "done" if self.failure is None else "failed"
        row |= {"folder": str(self.job.folder), "state": state}
        if self.failure is not None:
            return row | {"error": self.failure.error, "type": self.failure.type}
        result = self.result or {}
        row |= {key: result.get(key) for key in _REPORTED}
        return row | {"chosen": None if self.search is None else self.search["values"]}


def claim(job: Job) -> None:
    """Claim a job's folder for its configuration."""
    ResultStore(job.folder).open(resolved(job.config), resume=True)


@dataclass(frozen=True)
class Bench:
    """Benchmark that is ready to run: checked, with its folders claimed."""

    jobs: list[Job]
    trials: dict[Path, list[Job]]  # of rows with a search, by folder
    options: SearchConfig
    lock: FileLock | None = None  # keeps a second benchmark out until this one has run

    @property
    def size(self) -> int:
        """Number of seeds to learn, including those of searches."""
        return sum(len(job.config.seeds) for job in self.jobs) + sum(map(len, self.trials.values()))

    @property
    def fitting(self) -> int:
        """Number of seeds to learn at once on this machine."""
        return max(1, min(self.size, default_workers(self.jobs)))


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
    trials_by_folder = {job.folder: trials(job, config.search) for job in jobs if job.grid}
    ready = [job for job in jobs if not job.grid]
    for trials_of_job in trials_by_folder.values():
        ready += trials_of_job
    check_jobs(ready)
    check_free(out, BENCH, resume=resume)
    lock = locked(out, "a benchmark is being run")
    check_free(out, BENCH, resume=resume)  # another process may have been first
    if not (out / BENCH).exists():
        write_whole(out / BENCH, config.to_toml().encode())  # marks the folder as a benchmark's
    for job in ready:
        claim(job)
    write_whole(out / BENCH, config.to_toml().encode())
    return Bench(jobs, trials_by_folder, config.search, lock)


def run_bench(
    bench: Bench,
    *,
    workers: int,
    on_event: Callable[[Event], None] = lambda event: None,
    pool: WorkerPool | None = None,
) -> list[Row]:
    """Do the remaining work, and return every row; a failure does not stop the others.

    pool: does the work; processes of this machine by default.
    """
    failures: dict[Path, Failure] = {}

    def report(event: Event) -> None:
        if event.failure is not None:
            failures.setdefault(event.job.folder, event.failure)
            text = json.dumps(asdict(event.failure), indent=1)
            with suppress(ResultsError):  # perhaps a full disk; the row has the failure too
                write_whole(event.job.folder / FAILURE, text.encode())
        on_event(event)

    def learn(jobs: Sequence[Job]) -> None:
        work: list[Work] = []
        for job in jobs:
            with results_written(job.folder):
                (job.folder / FAILURE).unlink(missing_ok=True)  # it is retried
            seeds = {seed: read_progress(job.folder, seed) for seed in job.config.seeds}
            todo = [s for s, progress in seeds.items() if progress is None or not progress.result]
            if ResultStore(job.folder).finished() is not None:
                todo = []
            elif not todo:  # only the result is missing, which learning a seed makes
                todo = [job.config.seeds[0]]
            work += [(job, seed) for seed in todo]
            for seed in seeds.keys() - todo:
                on_event(Event("kept", job, seed, seeds[seed]))
        (run_work if pool is None else pool)(work, workers=workers, on_event=report)

    def search(job: Job) -> tuple[Job, dict[str, Any]] | None:
        """Choose the best trial and claim the folder for it; None if that fails."""
        trials_of_job = bench.trials[job.folder]
        failed = [trial for trial in trials_of_job if trial.folder in failures]
        if failed:  # a choice among the successful trials would depend on which ones failed
            first = failures[failed[0].folder]
            message = f"the search stopped at {failed[0].trial}: {first.error}"
            failure = Failure(message, first.type, first.traceback)
        else:
            results = [(trial, ResultStore(trial.folder).finished()) for trial in trials_of_job]
            done = [(trial, result) for trial, result in results if result is not None]
            final, choice = choose(job, done, bench.options)
            try:
                claim(final)
                text = json.dumps(choice, indent=1, allow_nan=False)
                write_whole(job.folder / CHOICE, text.encode())
                return final, choice
            except EvergraphError as error:
                failure = Failure.of(error)
        report(Event("failed", job, job.config.seeds[0], failure=failure))
        return None

    try:
        every_trial = list(chain.from_iterable(bench.trials.values()))
        without_search = [job for job in bench.jobs if not job.grid]
        # Rows without a search use the workers that the last trials leave free.
        learn([*every_trial, *without_search])
        choices = {job.folder: search(job) for job in bench.jobs if job.grid}
        learn([choice[0] for choice in choices.values() if choice is not None])
        rows = []
        for job in bench.jobs:
            final, searched = choices.get(job.folder) or (job, None)
            failure = failures.get(job.folder)
            result = None if failure else ResultStore(final.folder).finished()
            rows.append(Row(final, result, failure, searched))
        return rows
    finally:
        if bench.lock is not None:
            bench.lock.close()
