"""Waiting that ends: what never comes is a failed test, not a suite that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float = 20) -> None:
    """Return when ``condition`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)
