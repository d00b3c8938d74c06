"""``evergraph predict``: classes of nodes, from a learner."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import typer

from evergraph.cli.learner_target import Target, opened
from evergraph.cli.progress import spinner
from evergraph.core.errors import DataError

AT_ONCE = 1_000  # ids in one question


def predict_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    ids: str = typer.Argument(..., help="A file with an id a line or a column 'id'; - is stdin."),
    out: Path | None = typer.Option(None, help="The CSV to write.  [default: stdout]"),
    integers: bool = typer.Option(False, "--integers", help="Ids are whole numbers, not text."),
    token_file: Path | None = typer.Option(None, help="With a token that may read."),
) -> None:
    """Write id, class and probability of each node as CSV."""
    wanted = _read_ids(ids, integers)
    with (
        spinner("asking" if "://" in target else "loading torch and the learner"),
        opened(target, token_file=token_file, scope="read") as learner,
    ):
        rows = list(_predicted(learner, wanted))  # nothing is written if one id is not known
    if out is None:
        _write(sys.stdout, rows)
    else:
        with out.open("w", newline="", encoding="utf-8") as file:
            _write(file, rows)


def _predicted(learner: Target, ids: Sequence[str | int]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(ids), AT_ONCE):
        yield from learner.predict(ids[start : start + AT_ONCE])


def _write(file: IO[str], rows: Iterable[dict[str, Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("id", "class", "probability"))
    writer.writerows((row["id"], row["label"], f"{row['probability']:.6f}") for row in rows)


def _read_ids(source: str, integers: bool) -> list[str | int]:
    """Read ids: the column ``id`` if the first line has one, else the first of every line."""
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
    found = [line[place] for line in lines[named:] if len(line) > place and line[place]]
    return [_whole(source, text) for text in found] if integers else list(found)


def _whole(source: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{source}: with --integers ids must be integers, not {text!r}") from None
