"""Waiting that ends: what never comes is a failed test, not a suite that hangs."""

import threading
import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], object], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)


def gated(patch: Any, owner: object, name: str) -> tuple[threading.Event, threading.Event]:
    """Have a function wait; return what tells that it was called, and what lets it go on."""
    begun, gate, call = threading.Event(), threading.Event(), getattr(owner, name)

    def wait(*given: Any, **more: Any) -> Any:
        begun.set()
        assert gate.wait(20)
        return call(*given, **more)

    patch.setattr(owner, name, wait)
    return begun, gate
