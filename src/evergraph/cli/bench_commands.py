"""``evergraph bench`` and ``reproduce``: many experiments, and the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli import options
from evergraph.cli.inputs import with_shared_options
from evergraph.cli.options import (
    SeedOptions,
    argument,
    bench_of,
    default_folder,
    flag,
    option,
    parse_settings,
)
from evergraph.cli.output import (
    BenchProgress,
    StageProgress,
    print_json,
    print_table,
    say,
    show_runs,
    show_table,
    spinner,
    stops_with,
)
from evergraph.core.errors import ConfigurationError, EvergraphError, check_directory
from evergraph.core.safe_files import check_writable
from evergraph.core.sizes import check_room

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Row
    from evergraph.experiments.bench.jobs import BenchConfig

RESULT_BYTES = 1_000_000_000  # disk space per parallel run: two copies of its learner


@with_shared_options
def bench_command(
    bench: str = argument("The benchmark to run.", metavar="FILE.toml|PRESET"),
    search: bool = flag("--search", "Choose hyper-parameters first, on validation nodes."),
    workers: int | None = option(
        "Parallel runs (default: as many as the machine can hold).", min=1
    ),
    datasets: str | None = option("Comma-separated names or paths (default: those in the file)."),
    seeds: SeedOptions = SeedOptions(),
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
    from evergraph.core.resources import check_engine

    config = bench_of(bench, datasets=datasets, seeds=seeds.chosen, plugins=plugins)
    check_engine(engine, address)
    option_values = {"device": device, "protocol": protocol}
    overrides = parse_settings(settings) | {
        key: v for key, v in option_values.items() if v is not None
    }
    folder = out if out is not None else default_folder(f"bench-{Path(bench).stem}", resume=resume)
    with stops_with(f"finished tasks are kept; continue with --resume --out {folder}"):
        with spinner("loading torch and checking the benchmark"):
            from evergraph.experiments.bench.benchmark import open_bench, run_bench
            from evergraph.experiments.bench.pool import run_work

            opened = open_bench(config, out=folder, resume=resume, over=overrides, search=search)
        worker_count = workers or opened.fitting
        pool = None
        if engine == "ray":
            from evergraph.cluster.ray_engine import RayEngine

            with spinner("starting Ray" if address is None else f"joining {address}"):
                ray = RayEngine(address, worker_count if address is None else workers)
            pool, worker_count = partial(run_work, engine=ray), min(ray.workers, opened.size)
        with BenchProgress(opened) as progress:
            rows = run_bench(opened, workers=worker_count, on_event=progress.on_event, pool=pool)
    if as_json:
        row_values = [row.to_dict() for row in rows]
        print_json({"folder": str(folder), "rows": row_values, "notes": list(progress.notes)})
    else:
        _print_rows(rows)
        for note in progress.notes:
            say(f"note: {note}", err=True)
        say(f"results in {folder}; evergraph report {folder} draws figures")
    if failed := sum(row.failure is not None for row in rows):
        remedy = f"--resume --out {folder} retries them"
        say(f"{failed} of {len(rows)} runs failed: {remedy}", err=True)
        raise typer.Exit(1)


def _print_rows(rows: list[Row]) -> None:
    from evergraph.reports.runs import Finished

    searches = []
    for row in rows:
        search: dict[str, Any] = row.search or {"combinations": []}
        for trial in search["combinations"]:
            measures = (
                trial[f"average_{m}"][search["testing"]] for m in ("accuracy", "forgetting")
            )
            chosen = "chosen" if trial["name"] == search["chosen"] else ""
            name = trial["name"].replace(",", ", ")  # where a line may break
            searches.append((*row.job.names, name, *(f"{100 * m:.1f}" for m in measures), chosen))
    if searches:
        columns = ("method", "dataset", "setting", "combination", "AA", "AF", "chosen")
        print_table(columns, searches, "searched on validation nodes, percent")
    runs = [Finished(row.job.folder, row.result) for row in rows if row.result is not None]
    if runs:
        show_runs(runs)
    failures = [(*row.job.names, row.failure.error) for row in rows if row.failure is not None]
    if failures:
        print_table(("method", "dataset", "setting", "error"), failures, "failed")


@with_shared_options
def reproduce_command(
    names: list[str] = argument(
        "paper (tables 3 and 5 on the paper's four datasets), table1 to table5, fig4 to fig6, "
        "homophily, theorem, strategies, protocols.",
        metavar="STUDY...",
    ),
    datasets: str | None = option("Comma-separated names or paths (default: the study's own)."),
    seeds: SeedOptions = SeedOptions(),
    tables: str | None = option(
        "For study paper: table3, table5 or both, comma-separated (default: both)."
    ),
    methods: str | None = option(
        "For paper, table3, table5 and protocols: comma-separated names, such as tem,joint "
        "(default: the study's own)."
    ),
    download: bool = flag("--download", "First download and verify every file of all datasets."),
    source: Path | None = option(
        "A folder that contains the files (default: download them).", "--from"
    ),
    checksums: Path | None = option(
        "Expected checksums, in sha256sum's format (default: the catalogue's)."
    ),
    quick: bool = flag("--quick", "Quick trial: few epochs, one seed."),
    workers: int | None = option("Parallel runs (default: as many as fit).", min=1),
    device: options.Device = None,
    out: Path = option(
        "Results folder; existing results are kept.", default=Path("runs/reproduce")
    ),
) -> None:
    """Reproduce the paper's tables and figures.

    Its published numbers are shown beside the new ones. evergraph reproduce paper --download
    fetches the paper's four datasets, verifies every file and makes tables 3 and 5. Finished
    downloads and runs are not repeated: after an interruption or a failure, run the same command
    again. Exit code 1: something failed; the page lists it.
    """
    with spinner("loading torch"):
        from evergraph.core.resources import choose_device
        from evergraph.datasets.loading import is_registered
        from evergraph.methods import methods as known_methods
        from evergraph.studies import Options, studies
        from evergraph.studies.base import NOT_RUN, write_study
        from evergraph.studies.comparison import METHODS, TABLES

    chosen = [studies.make(name) for name in names]  # errors are raised before any work
    folder = out / "quick" if quick else out
    allowed_methods = known_methods.names() if names == ["protocols"] else METHODS
    runs = StudyRuns(workers, device, room=0 if quick else RESULT_BYTES)
    options = Options(
        out=folder,
        bench=runs,
        datasets=_choice("datasets", datasets),
        seeds=tuple(seeds.chosen or (0, 1, 2)),
        quick=quick,
        tables=_choice("tables", tables, TABLES),
        methods=_choice("methods", methods, allowed_methods),
    )
    for study in chosen:
        study.check()
    check_directory("--from", source)
    choose_device("auto" if device is None else device)
    check_writable(folder)
    unavailable: dict[str, None] = {}
    with stops_with("finished work is kept; run the same command again to continue"):
        if download or source is not None or checksums is not None:
            dataset_names = dict.fromkeys(
                name for study in chosen for name in study.datasets_of(options)
            )
            registered = [name for name in dataset_names if is_registered(name)]
            options = replace(options, missing=fetch_all(registered, source, checksums))
            unavailable = dict.fromkeys(options.missing)
        for study in chosen:
            with spinner(f"working on {study.name}"):
                sheets = study.run(options)
            page = write_study(study.name, sheets, folder)  # before printing, which may fail
            for sheet in sheets:
                if sheet.rows:
                    show_table(sheet.table)
                if sheet.picture is not None:
                    say(f"{sheet.title}: {folder / study.name / sheet.name}.png")
                say("".join(f"  {note}\n" for note in sheet.notes))
            if study.name == "paper":
                unavailable = dict.fromkeys(
                    f"{s.rows[0][0]}" for s in sheets if s.columns == NOT_RUN
                )
            say(f"page: {page}\n")
    for note in runs.notes:
        say(f"note: {note}", err=True)
    if runs.failed or unavailable:
        without = f", and {', '.join(unavailable)} could not be loaded" if unavailable else ""
        say(
            f"{runs.failed} of {runs.count} runs failed{without}: run the same command again to "
            "retry them and continue",
            err=True,
        )
        raise typer.Exit(1)


def _choice(option: str, text: str | None, known: Collection[str] | None = None) -> tuple[str, ...]:
    """Parse comma-separated names, of which ``known`` are allowed; None for datasets.

    If a study's own dataset is not available, its page says so; one that is given must be.
    """
    from evergraph.core.errors import UnknownNameError, check_once
    from evergraph.datasets.loading import check_source

    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        or_paths = " or paths" if known is None else ""
        raise ConfigurationError(f"{option} must be comma-separated names{or_paths}, not {text!r}")
    for name in names:
        if known is None:
            check_source(name)
        elif name not in known:
            raise UnknownNameError(f"name in --{option}", name, known)
    if known is None:
        stored = [Path(name).stem for name in names]
        check_once(option, stored, remedy=": results are stored by name")
    else:
        check_once(option, names)
    return names


class StudyRuns:
    """Runs benchmarks, resuming from the results in their folders.

    ``count`` and ``failed`` are numbers of runs; ``notes`` are their log messages, without
    duplicates.
    """

    def __init__(self, workers: int | None, device: str | None, *, room: int) -> None:
        self.count, self.failed = 0, 0
        self.notes: dict[str, None] = {}
        self._workers, self._room = workers, room
        self._over = {} if device is None else {"device": device}

    def __call__(self, config: BenchConfig, folder: Path) -> list[Row]:
        """Run a benchmark."""
        from evergraph.experiments.bench.benchmark import open_bench, run_bench

        bench = open_bench(config, out=folder, resume=True, over=self._over)
        fitting = self._workers or bench.fitting
        check_room(folder, fitting * self._room, "the intermediate state of runs")
        with BenchProgress(bench) as progress:
            rows = run_bench(bench, workers=fitting, on_event=progress.on_event)
        self.notes |= progress.notes
        self.count += len(rows)
        self.failed += sum(row.failure is not None for row in rows)
        return rows


def fetch_all(names: Sequence[str], folder: Path | None, checksums: Path | None) -> dict[str, str]:
    """Fetch, verify and parse datasets; return the errors of those that failed, by name.

    Disk space for all of them is checked first. Checksums are printed in sha256sum's format, for
    use with --checksums.
    """
    from evergraph.datasets.base import datasets, default_cache
    from evergraph.datasets.fetching import MAKE_ROOM, Fetch, read_sums, recorded
    from evergraph.datasets.published import PublishedDataset

    sums = {} if checksums is None else read_sums(checksums)
    chosen = [datasets.make(name) for name in names]
    published = [dataset for dataset in chosen if isinstance(dataset, PublishedDataset)]
    cache, missing = default_cache(), {}
    rooms = {dataset.name: dataset.raw(cache).room(Fetch(folder, sums)) for dataset in published}
    if to_fetch := [name for name, room in rooms.items() if room]:
        check_room(cache, sum(rooms.values()), f"fetching {', '.join(to_fetch)}", remedy=MAKE_ROOM)
    for dataset in published:
        with StageProgress({}) as progress:
            fetch = Fetch(folder, sums, on_progress=progress.on_progress)
            try:
                graph = dataset.load(cache, fetch)
            except EvergraphError as error:
                say(f"{dataset.name} is not available: {error}", err=True)
                missing[dataset.name] = str(error)
                continue
        say(f"{dataset.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, as published")
        for file, checksum in recorded(cache / dataset.name).items():
            say(f"{checksum}  {dataset.name}/{file}")
    return missing
