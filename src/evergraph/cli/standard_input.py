"""Lines of standard input as they come, without waiting for more than there is."""

from __future__ import annotations

import io
import os
import re
import select
import sys
from collections.abc import Iterator

from evergraph.core.errors import ConfigurationError, DataError

TICK = 0.1  # seconds after which it is said that there is no line at the moment
LONGEST = 1 << 26  # bytes of a line
_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0}


def seconds_of(text: str) -> float:
    """Return a time as ``--every`` takes it.

    >>> seconds_of("2s"), seconds_of("500ms"), seconds_of("1m"), seconds_of("0.5")
    (2.0, 0.5, 60.0, 0.5)
    """
    found = re.fullmatch(r"(\d+\.?\d*)\s*(ms|s|m|)", text.strip())
    if found is None:
        raise ConfigurationError(f"--every must be a time such as 2s, 500ms or 1m, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def arriving_lines() -> Iterator[bytes | None]:
    """Yield the lines of standard input, and None where there is none at the moment.

    Nothing is read ahead but what one look finds, so that who writes has to wait for who reads.
    """
    try:
        place = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):  # a text in its place
        yield from (line.encode() for line in sys.stdin)
        return
    yield from lines_from(place)


def lines_from(place: int) -> Iterator[bytes | None]:
    """Yield lines from an open file, by its number."""
    rest = b""
    while True:
        ready, _, _ = select.select([place], [], [], TICK)
        if not ready:
            yield None
            continue
        found = os.read(place, 1 << 16)
        if not found:
            break
        *whole, rest = (rest + found).split(b"\n")
        yield from whole
        if len(rest) > LONGEST:
            raise DataError(f"a line of standard input has more than {LONGEST:,} bytes")
    if rest:
        yield rest
