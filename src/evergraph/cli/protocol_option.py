"""The option of commands that run by the rules of a paper."""

from __future__ import annotations

from typing import Any

import typer

PROTOCOL: Any = typer.Option(
    None,
    help="Measure as a paper does: paper, cglb, puma, delome, tpp, llm4gcl or ocgl (default: none; "
    "evergraph list protocols).",
)
