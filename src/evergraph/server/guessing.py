"""Tokens that were refused: written down, and slowed where one address sends many."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from evergraph.server.audit import audit
from evergraph.server.gate import group_of

SAID = 5  # refusals of an address that are written down one by one, in a minute
MINUTE = 60.0
MOST = 10_000  # addresses remembered at once


class RefusedTokens:
    """Counts refused tokens by address, and writes them down: never the token.

    The first five of a minute have a line each, then every tenth power of them: a line says how
    many there were in this minute, and an address that guesses for a day does not fill a disk.

    Args:
        clock: seconds from some moment on.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def note(self, address: str, reason: str) -> None:
        """Count one, and write it down unless there are too many."""
        now, group = self._clock(), group_of(address)
        since, count = self._counts.pop(group, (now, 0))
        if now - since >= MINUTE:
            since, count = now, 0
        count += 1
        if len(self._counts) >= MOST:
            del self._counts[next(iter(self._counts))]  # whoever was refused least lately
        self._counts[group] = (since, count)
        if count <= SAID or str(count).strip("0") == "1":
            audit(
                "token refused",
                level=logging.WARNING,
                address=address,
                reason=reason,
                in_this_minute=count,
            )
