"""Options that say where work is done, the same for every command that takes them."""

from __future__ import annotations

from typing import Any

import typer

ENGINE: Any = typer.Option("local", help="Where to compute: local (here) or ray.")
ADDRESS: Any = typer.Option(
    None, help="A Ray cluster to join: auto or host:port (default: start Ray here)."
)
WORKER_THREADS: Any = typer.Option(
    None, min=1, help="Threads of each Ray worker (default: one, or its share of this machine)."
)
