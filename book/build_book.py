"""Build what is missing of the results book: every method on every dataset, the quickest first.

A row is written as soon as it is known: a book that was stopped, or killed, is of use, and the same
command goes on with it. Where rows lie and what they hold: ``book_rows``::

    python book/build_book.py --data FOLDER      # build what is missing
    python book/build_book.py --only tem,noise-2 # methods, datasets and settings by name
    python book/build_book.py --minutes 30       # stop in time; the same command goes on
    python book/build_book.py --list             # what is missing
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import monotonic

from book_page import book_page
from book_rows import BookPlan, BookRow, read_plan, read_row, rows_in
from submission import (
    command_of,
    commit_here,
    machine_in_words,
    row_of,
    stored_config,
    without_folder,
)

from evergraph.cli.output import BenchProgress, print_table, say
from evergraph.core.errors import (
    EXIT_CODE,
    ConfigurationError,
    EvergraphError,
    ResultsError,
    UnknownNameError,
    check_directory,
)
from evergraph.experiments.bench.benchmark import Bench, Row, claim, run_bench
from evergraph.experiments.bench.jobs import Job, SearchConfig, check_jobs
from evergraph.experiments.bench.pool import run_work
from evergraph.experiments.bench.worker import Event
from evergraph.experiments.build import parts_used, resolved
from evergraph.experiments.config import RunConfig, differences
from evergraph.experiments.result import machine, versions
from evergraph.experiments.store import ResultStore, locked, write_whole


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
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> list[Row]:
        """Build, and return what came of every row; one out of time has neither result nor failure.

        limit: the most seconds for one seed. minutes: after which to stop, whatever is left.
        """
        deadline = None if minutes is None else monotonic() + 60 * minutes
        run_until = partial(run_work, limit=limit, until=deadline)

        def follow(event: Event) -> None:
            if event.kind in ("done", "kept"):
                self._write_finished(event.job)
            on_event(event)

        rows = run_bench(self.bench, workers=workers, on_event=follow, pool=run_until)
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
    return [job for job in jobs if not _has_row(job, book, retry=retry)]


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


def _has_row(job: Job, book: Path, *, retry: bool) -> bool:
    path = book / job.dataset / job.setting / f"{job.label}.json"
    if not path.exists():
        return False
    try:
        row = read_row(path)
        # Options that an earlier version did not have are at their defaults.
        learned = resolved(RunConfig.of(row.config))
    except (ResultsError, ConfigurationError):
        return False  # damaged, or of parameters that are gone: it is built again
    wanted = without_folder(resolved(job.config))
    if "training" not in parts_used(wanted):  # a closed form: how it would be trained is no matter
        learned = learned.model_copy(update={"training": wanted.training})
    is_same = not differences(learned.to_dict(), wanted.to_dict())
    return is_same and not (retry and row.failure is not None)


def failed_row(job: Job, failure: str, *, commit: str) -> BookRow:
    """Return the row of a run that came to no result, which says why."""
    config = without_folder(resolved(job.config))
    return BookRow(
        dataset=job.dataset,
        setting=job.setting,
        label=job.label,
        method=config.method.name,
        protocol=getattr(config, "protocol", None),
        config=stored_config(config),
        command=command_of(config),
        commit=commit,
        versions=versions(),
        machine=machine_in_words(machine(config.device)),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        seeds=config.seeds,
        failure=failure,
    )


def named_jobs(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """Return the jobs of the methods, datasets and settings that are named; of each kind, all if
    none of it is.

    >>> chosen = named_jobs(read_plan().jobs(), ["tem", "finetune", "noise-2"])
    >>> [str(job) for job in chosen]
    ['finetune on noise-2, class-il', 'tem on noise-2, class-il']
    """
    known = {name for job in jobs for name in job.names}
    for name in names:
        if name not in known:
            raise UnknownNameError("method, dataset or setting", name, known)
    # The wanted methods, the wanted datasets, the wanted settings.
    names_by_kind = [{job.names[kind] for job in jobs} & set(names) for kind in range(3)]

    def is_wanted(job: Job) -> bool:
        pairs = zip(names_by_kind, job.names, strict=True)
        return all(not wanted_names or name in wanted_names for wanted_names, name in pairs)

    return [job for job in jobs if is_wanted(job)]


def located(job: Job, data: Path | None) -> Job | None:
    """Return a job whose graph is a file as that of a file in ``data``; None where it is not there.

    A dataset that is no file is left as it is.
    """
    name = job.config.dataset.name
    if not name.endswith(".npz"):
        return job
    if data is None or not (data / name).exists():
        return None
    dataset = job.config.dataset.model_copy(update={"name": str(data / name)})
    config = job.config.model_copy(update={"dataset": dataset})
    return replace(job, config=config)


def main(given: Sequence[str] | None = None) -> int:
    """Build, or list what is missing; return the exit code."""
    options = _options(given)
    try:
        return _build(options)
    except EvergraphError as error:
        say(f"error: {error}", err=True)
        return EXIT_CODE
    except KeyboardInterrupt:
        say("interrupted: what is done is kept, the same command goes on", err=True)
        return 130


def _options(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build what is missing of the results book.")
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/book"), help="where runs lie; begun ones go on")
    add("--book", type=Path, default=Path("book"), help="where rows go; one that is there is kept")
    add("--data", type=Path, help="folder of graphs in files; they are left out without it")
    add("--only", help="methods, datasets and settings between commas")
    add("--minutes", type=float, help="stop after so long; the same command goes on")
    add("--limit", type=float, help="the most seconds for one seed (default: the plan's, 300)")
    add("--workers", type=int, help="runs at once (default: what fits)")
    add("--device", help="auto, cpu or cuda (default: cpu for the small graphs, auto for others)")
    add("--retry", action="store_true", help="also build rows that failed before")
    add("--commit", help="of this code (default: $EVERGRAPH_COMMIT, or what git says)")
    add("--list", action="store_true", help="print what is missing, and build nothing")
    return parser.parse_args(given)


def _build(options: argparse.Namespace) -> int:
    plan = read_plan()
    jobs = _jobs(plan, options)
    if options.list:
        todo = missing(jobs, options.book, retry=options.retry)
        for job in todo:
            say(str(job))
        say(f"{len(todo)} rows are missing, {len(jobs) - len(todo)} are there")
        return 0
    commit = commit_here(options.commit)
    building = open_book(
        jobs, out=options.out, book=options.book, commit=commit, retry=options.retry
    )
    with BenchProgress(building.bench) as progress:
        rows = building.run(
            workers=options.workers or building.bench.fitting,
            limit=options.limit or plan.limit,
            minutes=options.minutes,
            on_event=progress.on_event,
        )
    _print_end(building, rows)
    page = options.out / "book.html"
    rows_there = rows_in(options.book) if options.book.is_dir() else []
    write_whole(page, book_page(rows_there, plan).encode())
    say(f"page: {page}")
    return 0


def _jobs(plan: BookPlan, options: argparse.Namespace) -> list[Job]:
    """Return what is asked for and can be had; say which graphs in files cannot."""
    check_directory("--data", options.data)
    over = {} if options.device is None else {"device": options.device}
    wanted = plan.jobs(out=options.out, over=over)
    if options.only is not None:
        wanted = named_jobs(
            wanted, [name.strip() for name in options.only.split(",") if name.strip()]
        )
    located_jobs = [(job, located(job, options.data)) for job in wanted]
    missing_files = sorted(
        {job.config.dataset.name for job, found_job in located_jobs if found_job is None}
    )
    if missing_files:
        folder = options.data
        where = "no folder was given with --data" if folder is None else f"they are not in {folder}"
        say(f"left out: {', '.join(missing_files)}: {where}", err=True)
    return [found_job for _, found_job in located_jobs if found_job is not None]


def _print_end(building: Building, rows: Sequence[Row]) -> None:
    failures = [(*row.job.names, row.failure.error) for row in rows if row.failure is not None]
    if failures:
        print_table(("method", "dataset", "setting", "failed because"), failures)
    built = sum(row.result is not None for row in rows)
    missing_count = len(rows) - built - len(failures)
    say(
        f"{building.book}: {building.kept} rows were there, {built} were built, {len(failures)} say "
        f"why they failed, {missing_count} are missing"
        + ("; the same command goes on" if missing_count else "")
    )


if __name__ == "__main__":
    sys.exit(main())
