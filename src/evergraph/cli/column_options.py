"""How tables are read: where they lie, how a CSV is written, what their columns are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    from evergraph.tables.choices import Columns
    from evergraph.tables.sources import Source

COLUMNS: Any = typer.Option(
    [],
    "--column",
    metavar="NAME=KIND",
    help="number, boolean, category, text, date, list, skip, or your own encoder (default: guess).",
)
GAPS: Any = typer.Option("flag", help="Gaps in columns: flag them, or refuse them.")
DATABASE: Any = typer.Option(
    None,
    "--from",
    help="sqlite:FILE, duckdb:FILE or adbc:DRIVER:URI instead of files (default: none).",
)
DELIMITER: Any = typer.Option(",", help="What stands between the columns of a CSV, such as ;.")
DECIMAL: Any = typer.Option(".", help="What stands before a fraction in a CSV: . or ,")
UNKNOWN_EDGES: Any = typer.Option(
    "refuse", help="Edges to nodes that are not there: refuse the table, or skip and count them."
)
STRICT: Any = typer.Option(False, "--strict", help="Refuse categories that come later.")


def tables_of(
    *given: str | None, database: str | None, delimiter: str, decimal: str
) -> list[Source | None]:
    """Return where tables come from: files, or queries where a database is named.

    >>> tables_of("n.csv", None, database=None, delimiter=";", decimal=".")
    [CsvTable(path=PosixPath('n.csv'), delimiter=';', decimal='.'), None]
    """
    from evergraph.tables.sources import CsvTable, Query, table_at

    usual = (delimiter, decimal) == (",", ".")
    if database is not None:
        found: list[Source | None] = [None if t is None else Query.of(database, t) for t in given]
    else:
        found = [None if text is None else table_at(text) for text in given]
    if not usual:
        found = [
            CsvTable(table, delimiter, decimal)
            if isinstance(table, Path) and table.suffix != ".parquet"
            else table
            for table in found
        ]
        if not any(isinstance(table, CsvTable) for table in found):
            raise ConfigurationError("--delimiter and --decimal are for CSV, and no table is one")
    return found


def parse_columns(given: Sequence[str], *, gaps: str, strict: bool) -> Columns:
    """Return the choices that were typed.

    >>> parse_columns(["zip=category", "no=skip"], gaps="flag", strict=False).kinds
    {'zip': 'category', 'no': 'skip'}
    """
    from evergraph.tables.choices import Columns

    for text in given:
        if "=" not in text:
            raise ConfigurationError(f"--column must be NAME=KIND, not {text!r}")
    kinds = dict(text.rsplit("=", 1) for text in given)
    return Columns(kinds=kinds, gaps=gaps, strict=strict)
