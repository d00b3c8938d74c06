"""Work that must not hold up the others, nor last for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

from evergraph.server.refusal import RefusedError

T = TypeVar("T")


async def in_thread(call: Callable[[], T], seconds: float) -> T:
    """Return what ``call`` returns, from a thread of its own; refuse where it takes too long."""
    try:
        with anyio.fail_after(seconds):
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    except TimeoutError:
        raise RefusedError(
            503, f"the answer took longer than {seconds:g} s", retry_after=1
        ) from None
