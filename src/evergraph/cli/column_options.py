"""``--column``, ``--gaps`` and ``--strict``: how the columns of a table of nodes are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    from evergraph.datasets.columns.choices import Columns

COLUMNS: Any = typer.Option(
    [],
    "--column",
    metavar="NAME=KIND",
    help="number, boolean, category, text, date, list, skip, or your own encoder (default: guess).",
)
GAPS: Any = typer.Option("flag", help="Gaps in columns: flag them, or refuse them.")
STRICT: Any = typer.Option(False, "--strict", help="Refuse categories that come later.")


def parse_columns(given: Sequence[str], *, gaps: str, strict: bool) -> Columns:
    """Return the choices that were typed.

    >>> parse_columns(["zip=category", "no=skip"], gaps="flag", strict=False).kinds
    {'zip': 'category', 'no': 'skip'}
    """
    from evergraph.datasets.columns.choices import Columns

    for text in given:
        if "=" not in text:
            raise ConfigurationError(f"--column must be NAME=KIND, not {text!r}")
    kinds = dict(text.rsplit("=", 1) for text in given)
    return Columns(kinds=kinds, gaps=gaps, strict=strict)
