"""Run a benchmark: search where there is something to choose, then learn every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.file_lock import FileLock
from evergraph.core.plugins import load_plugins
from evergraph.experiments.bench.checks import BENCH, check_folder, check_jobs
from evergraph.experiments.bench.config import BenchConfig, SearchConfig
from evergraph.experiments.bench.jobs import Job, expand
from evergraph.experiments.bench.pool import Pool
from evergraph.experiments.bench.records import BenchEvent, Row
from evergraph.experiments.bench.scheduler import Scheduler, claim
from evergraph.experiments.bench.search import Trial, trials
from evergraph.experiments.store import locked, write_whole


@dataclass(frozen=True)
class Bench:
    """A benchmark that can begin: all of it is checked and its folders are claimed.

    Attributes:
        jobs: its rows.
        trials: the trials of rows that are to be searched, by their folder.
        options: how the best trial is told.
        lock: what keeps a second benchmark out of its folder until this one has been run.
    """

    jobs: list[Job]
    trials: dict[Path, list[Trial]]
    options: SearchConfig
    lock: FileLock | None = None

    @property
    def size(self) -> int:
        """How many seeds are learned in all, those of the searches included."""
        return sum(len(job.config.seeds) for job in self.jobs) + sum(map(len, self.trials.values()))


def open_bench(
    config: BenchConfig,
    *,
    out: Path,
    resume: bool = False,
    over: Mapping[str, Any] | None = None,
    search: bool = False,
) -> Bench:
    """Check everything and claim the folders; what is wrong is said before any work starts.

    Args:
        config: the benchmark.
        out: the folder below which results lie.
        resume: whether to go on with what ``out`` holds.
        over, search: see ``expand``.
    """
    load_plugins(config.plugins)
    jobs = expand(config, out=out, over=over, search=search)
    searched = {j.folder: trials(j, config.search) for j in jobs if j.grid}
    ready = [job for job in jobs if not job.grid]
    ready += [trial.job for tried in searched.values() for trial in tried]
    check_jobs(ready)
    check_folder(out, resume=resume)
    lock = locked(out, "a benchmark is being run")
    check_folder(out, resume=resume)  # another one may have come first
    if not (out / BENCH).exists():
        write_whole(out / BENCH, config.to_toml().encode())  # now the folder is known as ours
    for job in ready:
        claim(job)
    write_whole(out / BENCH, config.to_toml().encode())
    return Bench(jobs, searched, config.search, lock)


def run_bench(
    bench: Bench,
    *,
    workers: int,
    on_event: Callable[[BenchEvent], None] = lambda event: None,
    pool: Pool | None = None,
) -> list[Row]:
    """Learn what is still to be learned, and return every row; one that fails stops no other.

    pool: who does the work; processes of this machine unless given.
    """
    try:
        return _run(bench, Scheduler(on_event, pool), workers)
    finally:
        if bench.lock is not None:
            bench.lock.close()


def _run(bench: Bench, scheduler: Scheduler, workers: int) -> list[Row]:
    plain = [job for job in bench.jobs if not job.grid]
    searches = [trial for tried in bench.trials.values() for trial in tried]
    # Rows without a search fill the places that the last trials leave free.
    scheduler.learn([(t.job, t) for t in searches] + [(job, None) for job in plain], workers)
    chosen = {
        job.folder: scheduler.choice(job, bench.trials[job.folder], bench.options)
        for job in bench.jobs
        if job.grid
    }
    scheduler.learn([(c.job, None) for c in chosen.values() if c is not None], workers)
    return [scheduler.row(job, chosen.get(job.folder)) for job in bench.jobs]
