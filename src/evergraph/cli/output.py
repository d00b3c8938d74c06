"""Printing results: tables for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout; the first column is text, the rest are aligned right if numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    body = [list(row) for row in rows]
    for place, column in enumerate(columns):
        numeric = all(row[place][:1] in "-0123456789" for row in body)
        table.add_column(column, justify="right" if numeric and place else "left")
    for row in body:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 160))  # a log has no edge to wrap at
    console.print(table)
