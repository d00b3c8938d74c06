"""``evergraph reproduce``: a table or figure of the paper, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.bench_progress import BenchProgress
from evergraph.cli.output import print_table
from evergraph.cli.progress import spinner
from evergraph.core.extras import require

if TYPE_CHECKING:
    from evergraph.experiments.bench.config import BenchConfig
    from evergraph.experiments.bench.records import Row
    from evergraph.studies import Sheet
    from evergraph.studies.base import RunBench


def reproduce_command(
    names: list[str] = typer.Argument(
        ...,
        metavar="STUDY...",
        help="table1 to table5, fig4 to fig6, homophily, theorem, strategies.",
    ),
    datasets: str | None = typer.Option(
        None, help="Names or paths between commas (default: the study's own)."
    ),
    seeds: int = typer.Option(3, min=1, help="How many repeats."),
    quick: bool = typer.Option(False, "--quick", help="Try it out: few epochs, one seed."),
    workers: int | None = typer.Option(None, min=1, help="Runs at once (default: what fits)."),
    device: str | None = typer.Option(None, help="auto, cpu or cuda."),
    out: Path = typer.Option(Path("runs/reproduce"), help="Results folder; what is there is kept."),
) -> None:
    """Make the paper's tables and figures again, with the paper's numbers beside ours.

    What was run before is not run again: an interrupted study goes on where it stopped.
    """
    with spinner("loading torch"):
        from evergraph.studies import Options, studies
        from evergraph.studies.results import keep

    chosen = [studies.make(name) for name in names]  # a wrong name is said before any work
    if any(study.draws for study in chosen):
        require("matplotlib", extra="report", why=f"drawing {' and '.join(names)}")
    folder = out / "quick" if quick else out
    options = Options(
        out=folder,
        bench=_runner(workers, device),
        datasets=() if datasets is None else tuple(datasets.split(",")),
        seeds=seeds,
        quick=quick,
    )
    try:
        for study in chosen:
            with spinner(f"working on {study.name}"):
                sheets = study.run(options)
            for sheet in sheets:
                _show(sheet, folder / study.name)
            for page in keep(study.name, sheets, folder):
                typer.echo(f"page: {page}\n")
    except KeyboardInterrupt:
        typer.echo("interrupted: what is done is kept, the same command goes on", err=True)
        raise typer.Exit(130) from None


def _runner(workers: int | None, device: str | None) -> RunBench:
    """Return what runs a benchmark with a live table, going on with what its folder holds."""

    def run(config: BenchConfig, folder: Path) -> list[Row]:
        from evergraph.experiments.bench.benchmark import open_bench, run_bench
        from evergraph.experiments.bench.capacity import default_workers

        over = {} if device is None else {"device": device}
        bench = open_bench(config, out=folder, resume=True, over=over)
        devices = {job.config.device for job in bench.jobs}
        fitting = workers or min(bench.size, *map(default_workers, devices))
        with BenchProgress(bench) as progress:
            return run_bench(bench, workers=fitting, on_event=progress.on_event)

    return run


def _show(sheet: Sheet, folder: Path) -> None:
    if sheet.rows:
        rows = [[cell.text for cell in row] for row in sheet.table.rows]
        print_table(sheet.columns, rows, sheet.title)
    if sheet.picture is not None:
        typer.echo(f"{sheet.title}: {folder / sheet.name}.png")
    for note in sheet.notes:
        typer.echo(f"  {note}")
    typer.echo()
