"""Printed results: tables for people, one JSON object for programs.

Printing does not fail on a limited terminal: characters that it lacks are replaced.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import typer

WORDS = ("all data", "failed")  # that may occur in a column of numbers
MIN_PROSE_WIDTH = 24  # characters; sentences are hard to read in a narrower column


def never_fail() -> None:
    """Make stdout and stderr replace characters that they cannot encode, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line; unlike ``typer.echo``, which writes UTF-8 even to an ASCII terminal."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


@contextmanager
def stops_with(sentence: str) -> Iterator[None]:
    """Print a sentence and exit with code 130 if the command is interrupted meanwhile."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: {sentence}", err=True)
        raise typer.Exit(130) from None


def print_json(value: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout."""
    say(json.dumps(value, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout; the first column is text, the rest are aligned right if numbers.

    Its width is that of the terminal, or ``$COLUMNS`` if output is piped; without either, it is as
    wide as it needs to be. Words are not cut: columns that do not fit go into a second table below,
    which repeats the first columns.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    head, body = list(columns), [list(row) for row in rows]
    numeric = [
        place > 0 and all(row[place][:1] in "-0123456789" or row[place] in WORDS for row in body)
        for place in range(len(head))
    ]
    widest = [_widest(cells) for cells in zip(head, *body, strict=True)]
    least = []
    for place, (name, *cells) in enumerate(zip(head, *body, strict=True)):
        words = cells if numeric[place] else [word for cell in cells for word in cell.split()]
        least.append(_widest([*name.split(), *words]))
    if not numeric[-1]:
        least[-1] = max(least[-1], min(widest[-1], MIN_PROSE_WIDTH))
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console = Console(width=_needed(widest))  # a log has no width to wrap at
    keys = [*numeric[:-1], True].index(True) or 1  # names before the first number
    for part in _parts(least, keys, console.width):
        table = Table(title=title or None, title_justify="left")
        roomy = _needed([least[place] for place in part]) <= console.width  # else words are folded
        for place in part:
            side: Literal["right", "left"] = "right" if numeric[place] else "left"
            whole = roomy and least[place] == widest[place]
            table.add_column(head[place], justify=side, no_wrap=whole, overflow="fold")
        for row in body:
            table.add_row(*(row[place] for place in part))
        console.print(table)
        title = ""


def _widest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1  # a rule and two spaces each, and a last rule


def _parts(least: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Return which columns are printed side by side; every part repeats the first ones.

    >>> _parts([4, 6, 6, 6], 1, 24), _parts([4, 6, 6, 6], 1, 40)
    ([[0, 1], [0, 2], [0, 3]], [[0, 1, 2, 3]])
    """
    first = list(range(keys))
    parts = [[*first]]
    for place in range(keys, len(least)):
        if len(parts[-1]) > keys and _needed([least[p] for p in (*parts[-1], place)]) > room:
            parts.append([*first])
        parts[-1].append(place)
    return parts
