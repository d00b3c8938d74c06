"""``evergraph reproduce``: a table or figure of the paper, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.bench_progress import BenchProgress
from evergraph.cli.output import print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.written_aside import check_writable

if TYPE_CHECKING:
    from evergraph.experiments.bench.config import BenchConfig
    from evergraph.experiments.bench.records import Row
    from evergraph.studies import Sheet
    from evergraph.studies.base import RunBench


def reproduce_command(
    names: list[str] = typer.Argument(
        ...,
        metavar="STUDY...",
        help="table1 to table5, fig4 to fig6, homophily, theorem, strategies, protocols.",
    ),
    datasets: str | None = typer.Option(
        None, help="Names or paths between commas (default: the study's own)."
    ),
    method: str | None = typer.Option(
        None, help="For protocols: one, or several between commas (default: the study's own)."
    ),
    seeds: int = typer.Option(3, min=1, help="How many repeats."),
    quick: bool = typer.Option(False, "--quick", help="Try it out: few epochs, one seed."),
    workers: int | None = typer.Option(None, min=1, help="Runs at once (default: what fits)."),
    device: str | None = typer.Option(None, help="auto, cpu or cuda (default: auto)."),
    out: Path = typer.Option(Path("runs/reproduce"), help="Results folder; what is there is kept."),
) -> None:
    """Make the paper's tables and figures again, with the paper's numbers beside ours.

    What was run before is not run again: an interrupted study goes on where it stopped.
    """
    with spinner("loading torch"):
        from evergraph.core.device import choose_device
        from evergraph.studies import Options, studies
        from evergraph.studies.results import keep

    chosen = [studies.make(name) for name in names]  # what is wrong is said before any work
    folder = out / "quick" if quick else out
    options = Options(
        out=folder,
        bench=_runner(workers, device),
        datasets=_names(datasets),
        seeds=seeds,
        quick=quick,
        methods=_methods(method, names),
    )
    for study in chosen:
        study.check()
    choose_device("auto" if device is None else device)
    check_writable(folder)
    try:
        for study in chosen:
            with spinner(f"working on {study.name}"):
                sheets = study.run(options)
            pages = keep(study.name, sheets, folder)  # before anything is printed: that may fail
            for sheet in sheets:
                _show(sheet, folder / study.name)
            for page in pages:
                say(f"page: {page}\n")
    except KeyboardInterrupt:
        say("interrupted: what is done is kept, the same command goes on", err=True)
        raise typer.Exit(130) from None


def _names(text: str | None) -> tuple[str, ...]:
    """Read names or paths of datasets between commas; a wrong one is said at once.

    A study's own datasets may not be at hand: then its page says so.
    """
    from evergraph.core.checks import check_once
    from evergraph.experiments.bench.checks import check_dataset
    from evergraph.experiments.config import Component

    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ConfigurationError(f"datasets must be names or paths between commas, not {text!r}")
    for name in names:
        check_dataset(Component(name=name))
    check_once("datasets", [Path(name).stem for name in names], remedy=": results go by that name")
    return names


def _methods(text: str | None, studies: list[str]) -> tuple[str, ...]:
    """Read names of methods between commas; a wrong one is said at once."""
    from evergraph.core.checks import check_once
    from evergraph.methods import methods

    if text is None:
        return ()
    if studies != ["protocols"]:
        raise ConfigurationError(
            f"--method is for the study protocols, not for {' '.join(studies)}"
        )
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        methods.resolve(name)
    check_once("method", names)
    return names


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
        say(f"{sheet.title}: {folder / sheet.name}.png")
    for note in sheet.notes:
        say(f"  {note}")
    say()
