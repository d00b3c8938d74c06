"""That something is going on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show on stderr that something is going on, where anyone is looking."""
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
