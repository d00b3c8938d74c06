"""``evergraph bench``: run many experiments side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli import options
from evergraph.cli.options import (
    argument,
    bench_of,
    default_folder,
    flag,
    option,
    parse_settings,
    seeds_of,
)
from evergraph.cli.output import print_json, print_table, say, stops_with
from evergraph.cli.progress import BenchProgress, spinner
from evergraph.core.engine import check_engine

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Row


def bench_command(
    bench: str = argument("The benchmark to run.", metavar="FILE.toml|PRESET"),
    search: bool = flag("--search", "Choose hyper-parameters first, on validation nodes."),
    workers: int | None = option(
        "Parallel runs (default: as many as the machine can hold).", min=1
    ),
    datasets: str | None = option("Comma-separated names or paths (default: those in the file)."),
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
    resume: bool = flag("--resume", "Continue a benchmark that was stopped."),
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
    with stops_with(f"finished tasks are kept; continue with --resume --out {folder}"):
        with spinner("loading torch and checking the benchmark"):
            from evergraph.experiments.bench.benchmark import open_bench, run_bench
            from evergraph.experiments.bench.pool import default_workers, run_work

            opened = open_bench(config, out=folder, resume=resume, over=over, search=search)
        devices = {job.config.device for job in opened.jobs}
        here = workers or min(opened.size, *map(default_workers, devices))
        pool = None
        if engine == "ray":
            from evergraph.cluster.ray_engine import RayEngine

            with spinner("starting Ray" if address is None else f"joining {address}"):
                ray = RayEngine(address, here if address is None else workers)
            pool, here = partial(run_work, engine=ray), min(ray.workers, opened.size)
        with BenchProgress(opened) as progress:
            rows = run_bench(opened, workers=here, on_event=progress.on_event, pool=pool)
    if as_json:
        told = [row.to_dict() for row in rows]
        print_json({"folder": str(folder), "rows": told, "notes": list(progress.notes)})
    else:
        _print_rows(rows)
        for note in progress.notes:
            say(f"note: {note}", err=True)
        say(f"results in {folder}; evergraph report {folder} draws figures")
    if failed := sum(row.failure is not None for row in rows):
        again = f"--resume --out {folder} retries them"
        say(f"{failed} of {len(rows)} runs failed: {again}", err=True)
        raise typer.Exit(1)


def _print_rows(rows: list[Row]) -> None:
    from evergraph.reports.runs import Finished, alone
    from evergraph.reports.tables.accuracy import comparison, failed, headline_table

    searches = []
    for row in rows:
        found: dict[str, Any] = row.search or {"combinations": []}
        for trial in found["combinations"]:
            measures = (trial[f"average_{m}"][found["testing"]] for m in ("accuracy", "forgetting"))
            chosen = "chosen" if trial["name"] == found["chosen"] else ""
            name = trial["name"].replace(",", ", ")  # where a line may break
            searches.append((*row.job.names, name, *(f"{100 * m:.1f}" for m in measures), chosen))
    if searches:
        columns = ("method", "dataset", "setting", "combination", "AA", "AF", "chosen")
        print_table(columns, searches, "searched on validation nodes, percent")
    runs = [Finished(row.job.folder, row.result) for row in rows if row.result is not None]
    if (first := headline_table(alone(runs))) is not None:
        print_table(first.headings, first.texts, first.caption)
    table = comparison(runs)
    told = iter(table.texts)
    lines = [failed(*row.job.names) if row.result is None else next(told) for row in rows]
    print_table(table.headings, lines, table.caption)
    failures = [(*row.job.names, row.failure.error) for row in rows if row.failure is not None]
    if failures:
        print_table(("method", "dataset", "setting", "error"), failures)
