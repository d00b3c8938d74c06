"""Printing results: tables for people, one JSON object for programs.

Whatever a terminal can show, printing does not fail: signs that it lacks are written in others.
"""

from __future__ import annotations

import codecs
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

SIGNS = {"±": "+/-", "…": "...", "·": "-", "\u2013": "-", "\u2014": "-", "\u00d7": "x"}
WORDS = ("all data", "failed")  # that stand among numbers
_HANDLER = "evergraph.plain"


def plain(text: str) -> str:
    """Return a text in ASCII, as near as it gets.

    >>> plain("│ 66.8 ± 0.4 … é ⠋ │")
    '| 66.8 +/- 0.4 ... e ? |'
    """
    return "".join(sign if sign.isascii() else _in_ascii(sign) for sign in text)


def _in_ascii(sign: str) -> str:
    if sign in SIGNS:
        return SIGNS[sign]
    name = unicodedata.name(sign, "")
    if name.startswith("BOX DRAWINGS"):
        if " AND " in name:  # lines that meet
            return "+"
        return "|" if "VERTICAL" in name else "-"
    letters = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return letters or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return plain(error.object[error.start : error.end]), error.end


def never_fail() -> None:
    """Let stdout and stderr write what they cannot encode in other signs, instead of raising."""
    codecs.register_error(_HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line.

    Not ``typer.echo``: on an ASCII terminal that writes UTF-8, which it shows as rubbish.
    """
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


def print_json(value: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout."""
    say(json.dumps(value, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout; the first column is text, the rest are aligned right if numbers."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 160))  # a log has no edge to wrap at
    # Replaced before it is set: signs that become longer would push the lines out of place.
    told = str if console.encoding.startswith("utf") else plain
    table = Table(title=told(title) or None, title_justify="left")
    body = [[told(cell) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        numeric = all(row[place][:1] in "-0123456789" or row[place] in WORDS for row in body)
        table.add_column(told(column), justify="right" if numeric and place else "left")
    for row in body:
        table.add_row(*row)
    console.print(table)
