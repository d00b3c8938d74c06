"""``--plugin``, the same for every command that takes it."""

from __future__ import annotations

from typing import Any

import typer

PLUGINS: Any = typer.Option(
    [],
    "--plugin",
    metavar="FILE.py|MODULE",
    help="What defines parts of your own; may be repeated (default: none).",
)
