"""``evergraph book``: the results of every method on every dataset, built or gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.bench_progress import BenchProgress
from evergraph.cli.output import print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.checks import check_directory

if TYPE_CHECKING:
    from evergraph.experiments.bench.jobs import Job
    from evergraph.experiments.bench.records import Row
    from evergraph.studies.book.building import Building
    from evergraph.studies.book.plan import BookPlan


def book_command(
    out: Path = typer.Option(Path("runs/book"), help="Where runs lie; begun ones go on."),
    book: Path = typer.Option(Path("book"), help="Where rows go; one that is there is kept."),
    data: Path | None = typer.Option(
        None, help="Folder of graphs in files (default: none; the book leaves them out)."
    ),
    only: str | None = typer.Option(
        None, help="Methods, datasets and settings between commas (default: all)."
    ),
    minutes: float | None = typer.Option(
        None, min=0, help="Stop after so long; the same command goes on (default: never)."
    ),
    limit: float | None = typer.Option(
        None, min=0, help="The most seconds for one seed (default: the plan's, 300)."
    ),
    workers: int | None = typer.Option(None, min=1, help="Runs at once (default: what fits)."),
    device: str | None = typer.Option(
        None, help="auto, cpu or cuda (default: cpu for the small graphs, auto for others)."
    ),
    retry: bool = typer.Option(False, "--retry", help="Also build rows that failed before."),
    commit: str | None = typer.Option(
        None, help="Of this code (default: $EVERGRAPH_COMMIT, or what git says)."
    ),
    listing: bool = typer.Option(False, "--list", help="Print what is missing, and build nothing."),
) -> None:
    """Build what is missing of the results book, the quickest rows first.

    A row is written as soon as it is known: a book that was stopped, or killed, is of use, and the
    same command goes on with it.
    """
    with spinner("loading torch and checking the book"):
        from evergraph.studies.book.building import missing, open_book
        from evergraph.studies.book.making import commit_here
        from evergraph.studies.book.plan import read_plan

        plan = read_plan()
        jobs = _jobs(plan, out, data, only, device)
        if listing:
            _print_missing(missing(jobs, book, retry=retry), jobs)
            return
        opened = open_book(jobs, out=out, book=book, commit=commit_here(commit), retry=retry)
    try:
        rows = _build(opened, workers, limit or plan.limit, minutes)
    except KeyboardInterrupt:
        say("interrupted: what is done is kept, the same command goes on", err=True)
        raise typer.Exit(130) from None
    _print_end(opened, rows)
    say(f"page: {_write_page(plan, book, out)}")


def _write_page(plan: BookPlan, book: Path, out: Path) -> Path:
    """Write the book's rows as one page to look at; the documentation makes its own."""
    from evergraph.experiments.store import write_whole
    from evergraph.studies.book.page import book_page
    from evergraph.studies.book.row import rows_in

    page = out / "book.html"
    write_whole(page, book_page(rows_in(book) if book.is_dir() else [], plan).encode())
    return page


def _jobs(
    plan: BookPlan, out: Path, data: Path | None, names: str | None, device: str | None
) -> list[Job]:
    from evergraph.studies.book.plan import located, only

    check_directory("--data", data)
    over = {} if device is None else {"device": device}
    wanted = plan.jobs(out=out, over=over)
    if names is not None:
        wanted = only(wanted, [name.strip() for name in names.split(",") if name.strip()])
    found = [(job, located(job, data)) for job in wanted]
    missing = sorted({job.config.dataset.name for job, here in found if here is None})
    if missing:
        place = "no folder was given with --data" if data is None else f"they are not in {data}"
        say(f"left out: {', '.join(missing)}: {place}", err=True)
    return [here for _, here in found if here is not None]


def _build(opened: Building, workers: int | None, limit: float, minutes: float | None) -> list[Row]:
    from evergraph.experiments.bench.capacity import default_workers

    bench = opened.bench
    devices = {job.config.device for job in bench.jobs} or {"cpu"}
    fitting = workers or max(1, min(bench.size, *map(default_workers, devices)))
    with BenchProgress(bench) as progress:
        return opened.run(workers=fitting, limit=limit, minutes=minutes, on_event=progress.on_event)


def _print_missing(todo: Sequence[Job], jobs: Sequence[Job]) -> None:
    for job in todo:
        say(str(job))
    say(f"{len(todo)} rows are missing, {len(jobs) - len(todo)} are there")


def _print_end(opened: Building, rows: Sequence[Row]) -> None:
    failures = [
        (row.job.label, row.job.dataset, row.job.setting, row.failure.error)
        for row in rows
        if row.failure is not None
    ]
    if failures:
        print_table(("method", "dataset", "setting", "failed because"), failures)
    built = sum(row.result is not None for row in rows)
    left = len(rows) - built - len(failures)
    say(
        f"{opened.book}: {opened.kept} rows were there, {built} were built, {len(failures)} say "
        f"why they failed, {left} are missing" + ("; the same command goes on" if left else "")
    )
