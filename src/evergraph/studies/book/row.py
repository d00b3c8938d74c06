"""A row of the book: one method on one dataset in one setting, all seeds, as one JSON file.

BOOK/DATASET/SETTING/LABEL.json
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from evergraph.core.errors import ResultsError
from evergraph.experiments.store import write_whole

FORMAT = 1
METRICS = ("average_accuracy", "average_forgetting", "anytime_accuracy")


@dataclass(frozen=True)
class BookRow:
    """What a method came to, or why it did not run.

    Attributes:
        dataset: what the book calls the graph; ``config`` holds its name and parameters.
        setting: class-il or task-il.
        label: what the book calls the method; ``method`` is its registered name.
        protocol: whose protocol it follows; None for the library's own.
        config: the whole resolved configuration as plain values.
        command: what runs it again.
        commit, versions, machine, date: of the code, the packages, the machine, the day.
        seeds: one repeat each.
        values: by testing, averaging and metric a number a seed, fractions of 1.
        tasks: by testing and averaging, for each seed, what the values follow from: ``curve``, AA
            after each task; ``learned``, each task's accuracy when it was learned; ``final``, at
            the end.
        facts: of the graph and its stream.
        seconds: by phase, of all seeds together.
        bytes: kept between tasks at the end; of no meaning where ``cumulative``, a method that is
            given all data again.
        peak_bytes: the largest resident size of a process; None where the system does not tell.
        failure: why there is no result; None where there is one.
        format: of this record.
    """

    dataset: str
    setting: str
    label: str
    method: str
    protocol: str | None
    config: dict[str, Any]
    command: str
    commit: str
    versions: dict[str, str]
    machine: str
    date: str
    seeds: tuple[int, ...]
    values: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    bytes: int | None = None
    cumulative: bool = False
    peak_bytes: int | None = None
    failure: str | None = None
    format: int = FORMAT

    @property
    def version(self) -> str:
        """The version of evergraph."""
        return self.versions.get("evergraph", "unknown")

    @property
    def place(self) -> str:
        """Where the row lies below the book's folder."""
        return f"{self.dataset}/{self.setting}/{self.label}.json"

    def __str__(self) -> str:
        return f"{self.label} on {self.dataset}, {self.setting}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, the checksum of all others among them."""
        values = asdict(self) | {"seeds": list(self.seeds)}
        return values | {"checksum": checksum(values)}

    def write(self, book: Path) -> Path:
        """Write the row into a book, whole or not at all, and return its path."""
        path = book / self.place
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False, sort_keys=True)
        write_whole(path, _on_one_line(text).encode())
        return path


def checksum(values: Mapping[str, Any]) -> str:
    """Return what tells a row from one that was edited: SHA-256 of its values in one fixed order.

    >>> checksum({"a": 1, "b": [2]}) == checksum({"b": [2], "a": 1, "checksum": "any"})
    True
    """
    plain = {key: value for key, value in values.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_row(path: Path) -> BookRow:
    """Return the row of a file; whether it is a sound one, ``check_row`` says."""
    values = read_values(path)
    known = {each.name for each in fields(BookRow)}
    try:
        row = BookRow(**{key: value for key, value in values.items() if key in known})
    except TypeError:
        missing = [key for key in _NEEDED if key not in values]
        raise ResultsError(f"{path} is no row of the book: it has no {missing[0]!r}") from None
    return row


def read_values(path: Path) -> dict[str, Any]:
    """Return what a row's file holds."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise ResultsError(f"{path} is no row of the book: it holds no JSON object")
    values["seeds"] = tuple(values.get("seeds", ()))
    return values


def rows_in(folder: Path) -> list[BookRow]:
    """Return every row of a book, by dataset, setting and label."""
    return [read_row(path) for path in row_files(folder)]


def row_files(folder: Path) -> list[Path]:
    """Return the file of every row of a book, in order; raise where there is no such folder."""
    if not folder.is_dir():
        raise ResultsError(f"{folder} is no book: there is no such folder")
    return sorted(folder.glob("*/*/*.json"))


_NEEDED = [each.name for each in fields(BookRow)][:12]


def _on_one_line(text: str) -> str:
    """Put lists of numbers on one line each: rows are compared line by line."""
    return _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text)


_NUMBERS = re.compile(r"\[([-+\d.,e\s]*)\]")
