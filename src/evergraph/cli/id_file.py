"""A file of ids."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from evergraph.core.errors import DataError


def read_ids(source: str, *, integers: bool) -> list[str | int]:
    """Read ids: the column ``id`` of a Parquet file; of text the column ``id`` if the first line
    has one, else the first of every line.

    source: a path, or - for stdin; integers: whether ids in text are whole numbers.
    """
    if source.endswith(".parquet"):
        return _read_parquet(Path(source))
    try:
        if source == "-":
            lines = list(csv.reader(sys.stdin))
        else:
            with Path(source).open(newline="", encoding="utf-8") as file:
                lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{source}: cannot be read as a list of ids ({error})") from None
    named = "id" in lines[0] if lines else False
    place = lines[0].index("id") if named else 0
    found = [
        (row, line[place])
        for row, line in enumerate(lines[named:], start=1)
        if len(line) > place and line[place]
    ]
    return [_whole(source, row, text) if integers else text for row, text in found]


def _read_parquet(path: Path) -> list[str | int]:
    from evergraph.tables.chunks import read_table
    from evergraph.tables.columns import ids
    from evergraph.tables.sources import naming

    with naming(path):
        found: list[str | int] = ids(read_table(path, ("id",)), "id").to_pylist()
        return found


def _whole(source: str, row: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(
            f"{source}: row {row}: with --integers ids must be integers, not {text!r}"
        ) from None
