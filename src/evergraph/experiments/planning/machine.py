"""The machines that a plan is for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from evergraph.core.errors import ConfigurationError

_BITS = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Machines:
    """Machines of one kind.

    Attributes:
        count: how many.
        cores: of each.
        memory: of each, in bytes.
        link: what the network of each carries, in bytes a second.
        limit: what ``--memory-limit`` will say; None for the default of a run.
        threads: of each of Ray's workers; Ray has one worker for every so many cores.
        disk: what its disk reads and writes, in bytes a second; as measured unless given.
    """

    count: int
    cores: int
    memory: int
    link: float
    limit: int | None = None
    threads: int = 1
    disk: float | None = None

    @property
    def workers(self) -> int:
        """How many of Ray's workers each machine has."""
        return max(self.cores // self.threads, 1)


def parse_rate(text: str) -> float:
    """Return the bytes a second that a text such as ``25Gbit`` or ``500MB`` means.

    >>> parse_rate("25Gbit"), parse_rate("500MB"), parse_rate("1 GB/s")
    (3125000000.0, 500000000.0, 1000000000.0)
    """
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kKmMgGtT])\s*(bit|b|B)(?:/s|ps)?\s*", text)
    try:
        assert found is not None
        rate = float(found[1]) * _BITS[found[2].upper()]
        assert rate > 0
    except (AssertionError, ValueError):
        raise ConfigurationError(
            f"a rate must be such as 25Gbit or 500MB a second, above 0, not {text!r}"
        ) from None
    return rate if found[3] == "B" else rate / 8
