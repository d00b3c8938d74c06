"""Whether a row of the book is one: every rule that it must obey, each broken one a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from evergraph.core.errors import ResultsError
from evergraph.experiments.config import RunConfig, merged
from evergraph.studies.book.building import differences
from evergraph.studies.book.making import metrics_of
from evergraph.studies.book.plan import BookPlan, read_plan
from evergraph.studies.book.row import (
    FORMAT,
    METRICS,
    BookRow,
    checksum,
    read_row,
    read_values,
    row_files,
)

# What the book decides; everything else is the method's own.
DECIDED = (
    "dataset.", "stream.", "seeds", "undirected", "directions", "part", "protocol", "test_every"
)  # fmt: skip
CLOSE = 2e-5  # numbers are rounded to five digits
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Rules:
    """What rows of a plan are held to.

    Attributes:
        expected: the configuration that the book has for each dataset and setting.
        facts: what tells each dataset's graph from others.
    """

    expected: Mapping[tuple[str, str], RunConfig]
    facts: Mapping[str, Mapping[str, int | float]]

    @classmethod
    def of(cls, plan: BookPlan) -> Rules:
        """Return the rules of a plan."""
        return cls({(job.dataset, job.setting): job.config for job in plan.jobs()}, plan.facts)


@cache
def shipped_rules() -> Rules:
    """Return the rules of the shipped plan."""
    return Rules.of(read_plan())


def check_book(folder: Path, rules: Rules | None = None) -> list[BookRow]:
    """Return the rows of a book, or raise on the first wrong one."""
    return [check_file(path, folder, rules) for path in row_files(folder)]


def check_file(path: Path, book: Path, rules: Rules | None = None) -> BookRow:
    """Return the row of a file, or say what is wrong with it."""
    values = read_values(path)
    unknown = sorted(values.keys() - {each.name for each in fields(BookRow)} - {"checksum"})
    if unknown:
        raise ResultsError(f"{path}: {unknown[0]!r} is nothing that a row has")
    row = read_row(path)
    if checksum(values) != values.get("checksum"):
        raise ResultsError(f"{path}: its checksum is not that of its values: it was edited")
    if path.relative_to(book).as_posix() != row.place:
        raise ResultsError(f"{path}: its values say that it belongs at {row.place}")
    check_row(row, rules, where=str(path))
    return row


def check_row(row: BookRow, rules: Rules | None = None, *, where: str | None = None) -> None:
    """Raise on the first rule that a row breaks.

    where: what to call the row; itself unless given.
    """
    for wrong in _complaints(row, shipped_rules() if rules is None else rules):
        raise ResultsError(f"{where or row}: {wrong}")


def _complaints(row: BookRow, rules: Rules) -> Iterator[str]:
    if row.format != FORMAT:
        yield f"format must be {FORMAT}, not {row.format!r}"
    known = sorted({dataset for dataset, _ in rules.expected})
    if row.dataset not in known:
        yield f"dataset must be one of the book's, {', '.join(known)}, not {row.dataset!r}"
    elif (row.dataset, row.setting) not in rules.expected:
        settings = sorted(setting for dataset, setting in rules.expected if dataset == row.dataset)
        yield f"setting of {row.dataset} must be {' or '.join(settings)}, not {row.setting!r}"
    else:
        yield from _of_config(row, rules.expected[row.dataset, row.setting])
    yield from _of_origin(row)
    if row.failure is None:
        yield from _of_facts(row.facts, rules.facts.get(row.dataset, {}))
        yield from _of_numbers(row)
    elif not row.failure.strip() or row.values:
        yield "a row that failed must say why, and have no values"


def _of_config(row: BookRow, expected: RunConfig) -> Iterator[str]:
    for key, (ours, theirs) in decided(row.config, expected).items():
        yield f"{key} must be {theirs!r} as in the book, not {ours!r}"
    if list(row.seeds) != list(expected.seeds):
        missing = sorted({*expected.seeds} - {*row.seeds})
        yield f"seeds must be {list(expected.seeds)}" + (
            f": seed {missing[0]} is missing" if missing else f", not {list(row.seeds)}"
        )
    named = row.config.get("method", {}).get("name")
    if named != row.method:
        yield f"method must be that of its configuration, {named!r}, not {row.method!r}"


def decided(config: Mapping[str, Any], expected: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return where a configuration differs from the book's in what the book decides."""
    # What an earlier version did not know, it did as the defaults say.
    found = differences(merged(RunConfig().to_dict(), config), expected.to_dict())
    return {key: pair for key, pair in found.items() if key.startswith(DECIDED)}


def _of_origin(row: BookRow) -> Iterator[str]:
    for package in ("evergraph", "torch"):
        if not row.versions.get(package):
            yield f"versions must tell that of {package}"
    if not _DATE.fullmatch(row.date):
        yield f"date must be a day such as 2026-11-16, not {row.date!r}"
    for name in ("commit", "machine", "label"):
        if not str(getattr(row, name)).strip():
            yield f"{name} must not be empty"
    if not row.command.startswith("evergraph ") or row.method not in row.command:
        yield f"command must be the evergraph command that ran {row.method}, not {row.command!r}"


def _of_facts(facts: Mapping[str, Any], known: Mapping[str, int | float]) -> Iterator[str]:
    for name, value in known.items():
        found = facts.get(name)
        if found is None or abs(found - value) > 1e-6:
            yield f"its graph is not the book's: {name} must be {value}, not {found}"


def _of_numbers(row: BookRow) -> Iterator[str]:
    for testing in ("local", "global"):
        for average in ("balanced", "plain"):
            way = f"{testing}, {average}"
            found = row.values.get(testing, {}).get(average)
            seeds = row.tasks.get(testing, {}).get(average)
            if found is None or seeds is None:
                yield f"values and tasks must have {way}"
            else:
                yield from _of_way(row, found, seeds, way)
    for name in ("embed", "train", "evaluate", "total"):
        spent = row.seconds.get(name)
        if not _sound(spent, 0, math.inf):
            yield f"seconds.{name} must be a number of at least 0, not {spent!r}"
    if not _sound(row.bytes, 0, math.inf):
        yield f"bytes must be a number of at least 0, not {row.bytes!r}"


def _of_way(
    row: BookRow, found: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]], way: str
) -> Iterator[str]:
    """Yield what is wrong with the numbers of one way of testing and averaging."""
    count = row.facts.get("tasks")
    for seed, kept in zip(row.seeds, seeds, strict=False):
        for name in ("curve", "learned", "final"):
            numbers = kept.get(name, ())
            if len(numbers) != count:
                yield f"{name} of seed {seed}, {way}, must have {count} numbers, not {len(numbers)}"
            for number in numbers:
                if not _sound(number, 0, 1):
                    yield f"{name} of seed {seed}, {way}, must lie within 0 and 1, not {number!r}"
        if abs(kept["curve"][-1] - sum(kept["final"]) / len(kept["final"])) > CLOSE:
            yield f"curve of seed {seed}, {way}, must end at the mean of final"
    if len(seeds) != len(row.seeds):
        yield f"tasks must have {len(row.seeds)} seeds, {way}, not {len(seeds)}"
    recomputed = metrics_of(seeds)
    for name in METRICS:
        told = found.get(name, ())
        if len(told) != len(row.seeds):
            yield f"{name}, {way}, must have a number for each seed, not {len(told)}"
        for seed, one, again in zip(row.seeds, told, recomputed[name], strict=False):
            if not _sound(one, -1, 1):
                yield f"{name} of seed {seed}, {way}, must be a finite number, not {one!r}"
            elif abs(one - again) > CLOSE:
                yield f"{name} of seed {seed}, {way}, is {one}, but its tasks make it {again}"


def _sound(number: Any, least: float, most: float) -> bool:
    plain = isinstance(number, (int, float)) and not isinstance(number, bool)
    return plain and math.isfinite(number) and least <= number <= most
