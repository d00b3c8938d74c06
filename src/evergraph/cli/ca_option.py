"""``--ca``: whose certificates are believed."""

from __future__ import annotations

from typing import Any

import typer

CA: Any = typer.Option(
    None,
    "--ca",
    metavar="FILE",
    help="PEM file of the authority that signed the certificate of an https service "
    "(default: the system's authorities).",
)
