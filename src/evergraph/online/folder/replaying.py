"""How far a recovery has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Replaying:
    """Deltas that are applied again after a restart.

    Attributes:
        done: how many have been applied.
        of: how many there are.
        seconds: what is left, as far as that is known; 0 at the end.

    >>> Replaying(done=10, of=40, seconds=2.0)
    Replaying(done=10, of=40, seconds=2.0)
    """

    done: int
    of: int
    seconds: float


Progress = Callable[[Replaying], None]
