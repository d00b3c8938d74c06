"""The results book: its rows, its plan, and the rules for rows.

A row is one method on one dataset in one setting with all seeds, in one JSON file:
BOOK/DATASET/SETTING/LABEL.json
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from evergraph.core.errors import ResultsError
from evergraph.experiments.bench.jobs import BenchConfig, Job, MethodEntry, Values, expand
from evergraph.experiments.config import (
    RunConfig,
    Section,
    differences,
    merged,
    read_toml,
    validated,
    with_seeds,
)
from evergraph.experiments.store import write_whole
from evergraph.methods import methods

FORMAT = 1
DIGITS = 5  # of an accuracy as a fraction
METRICS = ("average_accuracy", "average_forgetting", "anytime_accuracy")


@dataclass(frozen=True)
class BookRow:
    """The result of a method, or the reason why it did not run."""

    dataset: str  # the graph's name in the book; ``config`` holds its own name and parameters
    setting: str  # class-il or task-il
    label: str  # the method's name in the book; ``method`` is its registered name
    method: str
    protocol: str | None  # the protocol it follows; None for the library's own
    config: dict[str, Any]  # the whole resolved configuration as plain values
    command: str  # the command that repeats it
    # commit, versions, machine, date: of the code, the packages, the machine, the day
    commit: str
    versions: dict[str, str]
    machine: str
    date: str
    seeds: tuple[int, ...]  # one repeat each
    # Numbers per seed by testing, averaging and metric, fractions of 1.
    values: dict[str, Any] = field(default_factory=dict)
    # The basis of the values, by testing, averaging and seed: ``curve``, AA after each task;
    # ``learned``, each task's accuracy when it was learned; ``final``, at the end.
    tasks: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # facts about the graph and its stream
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, over all seeds
    # Kept between tasks at the end; meaningless if ``cumulative``, for a method that receives all
    # data again.
    bytes: int | None = None
    cumulative: bool = False
    peak_bytes: int | None = None  # the largest resident size of a process; None if unknown
    failure: str | None = None  # why there is no result; None if there is one
    format: int = FORMAT  # format of this record

    @property
    def version(self) -> str:
        """The version of evergraph."""
        return self.versions.get("evergraph", "unknown")

    @property
    def path_in_book(self) -> str:
        """The path of the row below the book's folder."""
        return f"{self.dataset}/{self.setting}/{self.label}.json"

    def __str__(self) -> str:
        return f"{self.label} on {self.dataset}, {self.setting}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with their checksum."""
        values = asdict(self) | {"seeds": list(self.seeds)}
        return values | {"checksum": checksum(values)}

    def write(self, book: Path) -> Path:
        """Write the row into a book atomically, and return its path."""
        path = book / self.path_in_book
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False, sort_keys=True)
        # Each list of numbers goes on one line, so that rows can be compared line by line.
        text = _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text)
        write_whole(path, text.encode())
        return path


def checksum(values: Mapping[str, Any]) -> str:
    """Return a SHA-256 of a row's values in a fixed order, to detect edits.

    >>> checksum({"a": 1, "b": [2]}) == checksum({"b": [2], "a": 1, "checksum": "any"})
    True
    """
    plain = {key: value for key, value in values.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_row(path: Path) -> BookRow:
    """Return the row in a file without checking it; see ``check_row``."""
    return _read(path)[0]


def _read(path: Path) -> tuple[BookRow, dict[str, Any]]:
    """Return the row in a file, and all of the file's values."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise ResultsError(f"{path} is not a row of the book: it is not a JSON object")
    values["seeds"] = tuple(values.get("seeds", ()))
    field_names = [item.name for item in fields(BookRow)]
    missing = [key for key in field_names[:12] if key not in values]  # those without a default
    if missing:
        raise ResultsError(f"{path} is not a row of the book: it has no {missing[0]!r}")
    return BookRow(**{key: values[key] for key in field_names if key in values}), values


def rows_in(folder: Path) -> list[BookRow]:
    """Return every row of a book, by dataset, setting and label."""
    return [read_row(path) for path in _row_files(folder)]


def _row_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ResultsError(f"{folder} is not a book: there is no such folder")
    return sorted(folder.glob("*/*/*.json"))


_NUMBERS = re.compile(r"\[([-+\d.,e\s]*)\]")
_SEEDS = re.compile(r"--(seed|seeds|repeats) (\S+)")


PLAN = Path(__file__).with_name("book.toml")


class Chapter(Section):
    """Some datasets in some settings: a benchmark without its methods."""

    name: str
    datasets: tuple[Any, ...] = Field(min_length=1)
    settings: tuple[str, ...] = ("class-il",)
    seeds: tuple[int, ...] = Field(min_length=1)
    common: Values = Field(default_factory=dict)


class Change(Section):
    """What changed a method's results, and the day since which rows have it."""

    date: str
    what: str


class BookPlan(Section):
    """The whole plan.

    >>> [chapter.name for chapter in read_plan().chapters]
    ['ladders', 'graphs', 'wordnet', 'wordnet-ways']
    """

    limit: float  # most seconds per seed
    common: Values = Field(default_factory=dict)  # values of ``RunConfig`` for every run
    # By name, or as in a benchmark; other registered ones follow.
    methods: tuple[MethodEntry, ...] = ()
    chapters: tuple[Chapter, ...] = Field(min_length=1)  # the datasets and settings
    # Facts that identify each graph, by the dataset's label.
    facts: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)  # why an expected graph is missing
    changed: dict[str, Change] = Field(default_factory=dict)  # by label: earlier rows are stale

    @property
    def entries(self) -> tuple[MethodEntry, ...]:
        """Every method: those listed, then the other registered ones of the library."""
        listed = {entry.name for entry in self.methods}
        unlisted = [name for name in methods.names() if name not in listed]
        own_methods = [
            n for n in unlisted if methods.resolve(n).__module__.startswith("evergraph.")
        ]
        return (*self.methods, *(MethodEntry(name=name) for name in own_methods))

    @cached_property
    def expected(self) -> dict[tuple[str, str], RunConfig]:
        """The configuration for each dataset and setting, the same for every method."""
        jobs = self.jobs(entries=self.entries[-1:])
        return {(job.dataset, job.setting): job.config for job in jobs}

    def jobs(
        self,
        *,
        out: Path = Path(),
        over: Mapping[str, Any] | None = None,
        entries: Sequence[MethodEntry] | None = None,
    ) -> list[Job]:
        """Return a job for every row, the fastest first.

        out: folder of runs; over: values of ``RunConfig`` for all of them; entries: methods whose
        rows are wanted, by default all, which are more than a thousand rows.
        """
        listed = [entry.model_dump() for entry in (self.entries if entries is None else entries)]
        jobs: list[Job] = []
        for chapter in self.chapters:
            common = merged(self.common, chapter.common)
            values = chapter.model_dump(exclude={"name"}) | {"common": common, "methods": listed}
            jobs += expand(BenchConfig.of(values), out=out, over=over)
        return jobs


@cache
def read_plan(path: Path = PLAN) -> BookPlan:
    """Return the plan in a TOML file, by default that of the repository."""
    return validated(BookPlan, read_toml(path), str(path))


# Options fixed by the book; all others are the method's own.
DECIDED = (
    "dataset.",
    "stream.",
    "seeds",
    "undirected",
    "directions",
    "part",
    "protocol",
    "test_every",
)
CLOSE = 2e-5  # numbers are rounded to five digits
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def check_book(folder: Path, plan: BookPlan | None = None) -> list[BookRow]:
    """Return the rows of a book; raise for the first invalid one.  plan: that of the repository"""
    return [check_file(path, folder, plan) for path in _row_files(folder)]


def check_file(path: Path, book: Path, plan: BookPlan | None = None) -> BookRow:
    """Return the row in a file; raise if it is invalid."""
    row, values = _read(path)
    unknown = sorted(values.keys() - {item.name for item in fields(BookRow)} - {"checksum"})
    if unknown:
        raise ResultsError(f"{path}: unknown field {unknown[0]!r}")
    if checksum(values) != values.get("checksum"):
        raise ResultsError(f"{path}: the checksum does not match the values: it was edited")
    if path.relative_to(book).as_posix() != row.path_in_book:
        raise ResultsError(f"{path}: a row with its values belongs at {row.path_in_book}")
    check_row(row, plan, where=str(path))
    return row


def check_row(row: BookRow, plan: BookPlan | None = None, *, where: str | None = None) -> None:
    """Raise for the first rule that a row breaks; where: its name in the message, or its own."""
    for complaint in _complaints(row, read_plan() if plan is None else plan):
        raise ResultsError(f"{where or row}: {complaint}")


def _complaints(row: BookRow, plan: BookPlan) -> Iterator[str]:  # noqa: C901
    if row.format != FORMAT:
        yield f"format must be {FORMAT}, not {row.format!r}"
    datasets = sorted({dataset for dataset, _ in plan.expected})
    expected = plan.expected.get((row.dataset, row.setting))
    if row.dataset not in datasets:
        yield f"dataset must be one of the book's, {', '.join(datasets)}, not {row.dataset!r}"
    elif expected is None:
        settings = sorted(setting for dataset, setting in plan.expected if dataset == row.dataset)
        yield f"setting of {row.dataset} must be {' or '.join(settings)}, not {row.setting!r}"
    else:
        for key, (ours, theirs) in fixed_differences(row.config, expected).items():
            yield f"{key} must be {theirs!r} as in the book, not {ours!r}"
        if list(row.seeds) != list(expected.seeds):
            missing = sorted({*expected.seeds} - {*row.seeds})
            yield f"seeds must be {list(expected.seeds)}" + (
                f": seed {missing[0]} is missing" if missing else f", not {list(row.seeds)}"
            )
        method = row.config.get("method", {}).get("name")
        if method != row.method:
            yield f"method must be that of its configuration, {method!r}, not {row.method!r}"
    for package in ("evergraph", "torch"):
        if not row.versions.get(package):
            yield f"versions must include {package}"
    if not _DATE.fullmatch(row.date):
        yield f"date must be a day such as 2026-11-16, not {row.date!r}"
    for name in ("commit", "machine", "label"):
        if not str(getattr(row, name)).strip():
            yield f"{name} must not be empty"
    if not row.command.startswith("evergraph ") or row.method not in row.command:
        yield f"command must be the evergraph command that ran {row.method}, not {row.command!r}"
    if (seeds := seeds_in(row.command)) != list(row.seeds):
        yield f"command must run seeds {list(row.seeds)}, and {row.command!r} runs {seeds}"
    if row.failure is not None:
        if not row.failure.strip() or row.values:
            yield "a row that failed must give the reason and have no values"
        return
    for name, value in plan.facts.get(row.dataset, {}).items():
        fact = row.facts.get(name)
        if fact is None or abs(fact - value) > 1e-6:
            yield f"the graph differs from the book's: {name} must be {value}, not {fact}"
    for testing, average in product(("local", "global"), ("balanced", "plain")):
        yield from _number_complaints(row, testing, average)
    for name in ("embed", "train", "evaluate", "total"):
        spent = row.seconds.get(name)
        if not _is_number_within(spent, 0, math.inf):
            yield f"seconds.{name} must be a number of at least 0, not {spent!r}"
    if not _is_number_within(row.bytes, 0, math.inf):
        yield f"bytes must be a number of at least 0, not {row.bytes!r}"


def seeds_in(command: str) -> list[int]:
    """Return the seeds that a command runs.

    >>> [seeds_in(f"evergraph run {part}") for part in ("--repeats 3", "--seeds 3", "--seeds 4,5")]
    [[0, 1, 2], [3], [4, 5]]
    """
    given = {key: [int(seed) for seed in text.split(",")] for key, text in _SEEDS.findall(command)}
    options = {key: seeds if key == "seeds" else seeds[0] for key, seeds in given.items()}
    seeds: list[int] = with_seeds(options or {"seed": 0})["seeds"]
    return seeds


def fixed_differences(config: Mapping[str, Any], expected: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return the differences to the book's configuration in the options fixed by the book."""
    # Options that an earlier version did not have are at their defaults.
    all_differences = differences(merged(RunConfig().to_dict(), config), expected.to_dict())
    return {key: pair for key, pair in all_differences.items() if key.startswith(DECIDED)}


def _number_complaints(row: BookRow, testing: str, average: str) -> Iterator[str]:
    """Yield the errors in the numbers of one way of testing and averaging."""
    way, count = f"{testing}, {average}", row.facts.get("tasks")
    metrics: Any = row.values.get(testing, {}).get(average)
    seeds: Any = row.tasks.get(testing, {}).get(average)
    if metrics is None or seeds is None:
        yield f"values and tasks must have {way}"
        return
    for seed, of_seed in zip(row.seeds, seeds, strict=False):
        for name in ("curve", "learned", "final"):
            numbers = of_seed.get(name, ())
            if len(numbers) != count:
                yield f"{name} of seed {seed}, {way}, must have {count} numbers, not {len(numbers)}"
            for number in numbers:
                if not _is_number_within(number, 0, 1):
                    yield f"{name} of seed {seed}, {way}, must lie within 0 and 1, not {number!r}"
        if abs(of_seed["curve"][-1] - sum(of_seed["final"]) / len(of_seed["final"])) > CLOSE:
            yield f"curve of seed {seed}, {way}, must end at the mean of final"
    if len(seeds) != len(row.seeds):
        yield f"tasks must have {len(row.seeds)} seeds, {way}, not {len(seeds)}"
    recomputed = metrics_of(seeds)
    for name in METRICS:
        given_values = metrics.get(name, ())
        if len(given_values) != len(row.seeds):
            yield f"{name}, {way}, must have a number for each seed, not {len(given_values)}"
        for seed, given, expected in zip(row.seeds, given_values, recomputed[name], strict=False):
            if not _is_number_within(given, -1, 1):
                yield f"{name} of seed {seed}, {way}, must be a finite number, not {given!r}"
            elif abs(given - expected) > CLOSE:
                yield f"{name} of seed {seed}, {way}, is {given}, but its tasks give {expected}"


def _is_number_within(number: Any, least: float, most: float) -> bool:
    plain = isinstance(number, (int, float)) and not isinstance(number, bool)
    return plain and math.isfinite(number) and least <= number <= most


def metrics_of(seeds: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Return the metrics of each seed, computed from the kept parts of its matrix.

    >>> metrics_of([{"curve": [0.9, 0.6], "learned": [0.9, 0.7], "final": [0.5, 0.7]}])
    {'average_accuracy': [0.6], 'average_forgetting': [-0.4], 'anytime_accuracy': [0.75]}
    """
    changes = [np.subtract(seed["final"], seed["learned"])[:-1] for seed in seeds]
    means: dict[str, list[Any]] = {
        "average_accuracy": [np.mean(seed["final"]) for seed in seeds],
        "average_forgetting": [change.mean() if len(change) else 0.0 for change in changes],
        "anytime_accuracy": [np.mean(seed["curve"]) for seed in seeds],
    }
    return {name: [round(float(v), DIGITS) for v in values] for name, values in means.items()}
