"""Everything that is wrong with a benchmark and shows before data is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    EvergraphError,
    ResultsError,
    UnknownNameError,
)
from evergraph.core.file_lock import LOCK_FILE
from evergraph.datasets import datasets
from evergraph.datasets.loading import READERS, is_registered, looks_like_path
from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.build import check
from evergraph.experiments.config import Component, StreamConfig
from evergraph.streams.stream import EDGES
from evergraph.streams.ways import check_way

BENCH = "bench.toml"


def check_jobs(jobs: Iterable[Job]) -> None:
    """Raise on the first run that could not begin, and say which it is."""
    for job in jobs:
        try:
            check(job.config)
            check_dataset(job.config.dataset)
            check_stream(job.config.stream)
        except EvergraphError as error:
            raise ConfigurationError(f"{job}: {error}") from None


def check_stream(stream: StreamConfig) -> None:
    """Raise unless tasks could be cut this way, as far as can be told without the graph."""
    check_choice("edges", stream.edges, EDGES)
    check_integer("classes_per_task", stream.classes_per_task, least=1)
    check_way(**stream.model_dump(include={"by", "tasks", "blur", "setting", "batch"}))


def check_dataset(dataset: Component) -> None:
    """Raise unless a dataset has a name or path that can be loaded, without loading it."""
    name, path = dataset.name, Path(dataset.name).expanduser()
    if is_registered(name):
        datasets.make(name, **dataset.parameters)
    elif not looks_like_path(name):
        raise UnknownNameError("dataset, and no file or folder, called", name, datasets.names())
    elif dataset.parameters:
        raise ConfigurationError(
            f"parameter {next(iter(dataset.parameters))!r} was given with the path {name}: "
            "a path takes none"
        )
    elif not path.exists():
        raise DataError(f"no such file or folder: {name}")
    elif path.is_file() and path.suffix not in READERS:
        raise DataError(f"{name} must be a folder of tables or end in {' or '.join(READERS)}")


def check_folder(out: Path, *, resume: bool) -> None:
    """Raise unless a benchmark's results can go into a folder."""
    if not out.exists():
        return
    ours = (out / BENCH).exists()
    if ours and not resume:
        raise ResultsError(
            f"{out} holds results already: use --resume to go on with them, or another --out"
        )
    begun = (LOCK_FILE, f".{BENCH}-")  # what one leaves that is killed while it claims the folder
    if not ours and (
        out.is_file() or any(not path.name.startswith(begun) for path in out.iterdir())
    ):
        raise ResultsError(f"{out} is not an empty folder nor one of our results")
