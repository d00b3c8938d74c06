"""``evergraph bench``: compare methods, datasets and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli import options
from evergraph.cli.options import bench_of, default_folder, parse_settings, seeds_of
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import BenchProgress, spinner
from evergraph.core.engine import check_engine

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Bench, Row
    from evergraph.experiments.bench.pool import WorkerPool


def bench_command(
    bench: str = typer.Argument(..., metavar="FILE.toml|PRESET", help="The benchmark to run."),
    search: bool = typer.Option(
        False, "--search", help="Choose hyper-parameters first, on validation nodes."
    ),
    workers: int | None = typer.Option(
        None, min=1, help="Parallel runs (default: as many as the machine can hold)."
    ),
    datasets: str | None = typer.Option(
        None, help="Comma-separated names or paths (default: those in the file)."
    ),
    seed: options.Seed = None,
    seeds: options.Seeds = None,
    repeats: options.Repeats = None,
    device: options.Device = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    settings: options.Settings = [],
    protocol: options.Protocol = None,
    plugins: options.Plugins = [],
    out: options.ResultsFolder = None,
    resume: bool = typer.Option(False, "--resume", help="Continue a benchmark that was stopped."),
    as_json: options.AsJson = False,
) -> None:
    """Run methods x datasets x settings x seeds in parallel.

    A failed run is listed with its error; --resume retries it and skips finished runs.
    """
    config = bench_of(
        bench, datasets=datasets, seeds=seeds_of(seed, seeds, repeats), plugins=plugins
    )
    check_engine(engine, address)
    given = {"device": device, "protocol": protocol}
    over = parse_settings(settings) | {key: v for key, v in given.items() if v is not None}
    folder = out if out is not None else default_folder(f"bench-{Path(bench).stem}", resume=resume)
    try:
        with spinner("loading torch and checking the benchmark"):
            from evergraph.experiments.bench.benchmark import open_bench

            opened = open_bench(config, out=folder, resume=resume, over=over, search=search)
        rows, notes = _run(opened, workers, engine, address)
    except KeyboardInterrupt:
        say(
            f"interrupted: finished tasks are kept; continue with --resume --out {folder}", err=True
        )
        raise typer.Exit(130) from None
    if as_json:
        print_json(_as_dict(rows, notes, folder))
    else:
        _print_rows(rows, notes, folder)
    _exit(rows, folder)


def _run(
    bench: Bench, workers: int | None, engine: str, address: str | None
) -> tuple[list[Row], list[str]]:
    from evergraph.experiments.bench.benchmark import run_bench

    pool, fitting = None, workers or _fitting(bench)
    if engine == "ray":
        pool, fitting = _ray_pool(bench, workers, address)
    with BenchProgress(bench) as progress:
        rows = run_bench(bench, workers=fitting, on_event=progress.on_event, pool=pool)
    return rows, list(progress.notes)


def _fitting(bench: Bench) -> int:
    """Return how many runs fit on this machine at once."""
    from evergraph.experiments.bench.pool import default_workers

    devices = {job.config.device for job in bench.jobs}
    return min(bench.size, *map(default_workers, devices))


def _ray_pool(bench: Bench, workers: int | None, address: str | None) -> tuple[WorkerPool, int]:
    """Start or join Ray, and return its pool and how many runs fit at once."""
    from evergraph.cluster.ray_engine import RayEngine
    from evergraph.experiments.bench.pool import RayPool

    here = _fitting(bench) if workers is None and address is None else workers
    with spinner("starting Ray" if address is None else f"joining {address}"):
        engine = RayEngine(address, here)
    return RayPool(engine), min(engine.workers, bench.size)


def _exit(rows: list[Row], folder: Path) -> None:
    failed = sum(row.failure is not None for row in rows)
    if failed:
        say(
            f"{failed} of {len(rows)} runs failed: --resume --out {folder} retries them",
            err=True,
        )
        raise typer.Exit(1)


def _as_dict(rows: list[Row], notes: list[str], folder: Path) -> dict[str, Any]:
    return {"folder": str(folder), "rows": [row.to_dict() for row in rows], "notes": notes}


def _print_rows(rows: list[Row], notes: list[str], folder: Path) -> None:
    from evergraph.reports import Finished, comparison
    from evergraph.reports.tables.accuracy import failed, headlines

    searches = [line for row in rows for line in _search_lines(row)]
    if searches:
        columns = ("method", "dataset", "setting", "combination", "AA", "AF", "chosen")
        print_table(columns, searches, "searched on validation nodes, percent")
    runs = [Finished(row.job.folder, row.result) for row in rows if row.result is not None]
    if (first := headlines(runs)) is not None:
        print_table(first.headings, first.texts, first.caption)
    table = comparison(runs)
    told = iter(table.texts)
    lines = [failed(*_names(row)) if row.result is None else next(told) for row in rows]
    print_table(table.headings, lines, table.caption)
    failures = [(*_names(row), row.failure.error) for row in rows if row.failure is not None]
    if failures:
        print_table(("method", "dataset", "setting", "error"), failures)
    for note in notes:
        say(f"note: {note}", err=True)
    say(f"results in {folder}; evergraph report {folder} draws figures")


def _names(row: Row) -> tuple[str, str, str]:
    return row.job.label, row.job.dataset, row.job.setting


def _search_lines(row: Row) -> list[tuple[str, ...]]:
    if row.choice is None:
        return []
    found = row.choice.to_dict()
    return [(*_names(row), *_trial_cells(trial, found)) for trial in found["combinations"]]


def _trial_cells(trial: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    testing = found["testing"]
    accuracy, forgetting = trial["average_accuracy"][testing], trial["average_forgetting"][testing]
    chosen = "chosen" if trial["name"] == found["chosen"] else ""
    name = trial["name"].replace(",", ", ")  # where a line may break
    return (name, f"{100 * accuracy:.1f}", f"{100 * forgetting:.1f}", chosen)
