"""Where whole numbers stand that are names: many are found at once, without a look-up for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
SPREAD = 4  # slots for each name at most, so that names far apart take no memory
LEAST = 1024


class NumberSlots:
    """An array with a slot for each of the numbers 0, 1, 2, ..., which holds where it stands.

    Numbers that are negative or too far apart have none: who looks finds them elsewhere.

    Attributes:
        outside: how many numbers were put and have no slot.

    >>> slots = NumberSlots()
    >>> slots.put([5, 3, -1], 10)
    >>> slots.where(np.array([3, 4, -1])), slots.outside
    (array([11, -1, -1]), 1)
    """

    def __init__(self) -> None:
        self.outside = 0
        self._slots = np.full(0, -1, dtype=np.int64)

    def put(self, numbers: Sequence[int] | Array, start: int, *, places: Any = None) -> None:
        """Put numbers that stand one behind the other, the first at ``start``, or at ``places``."""
        if not len(numbers):
            return
        found = np.array(numbers, dtype=np.int64)
        stands = start + np.arange(len(found)) if places is None else np.asarray(places)
        most = max(LEAST, SPREAD * (int(stands[-1]) + 1))
        near = (found >= 0) & (found < most)
        self.outside += int(len(found) - near.sum())
        if near.any():
            self._reach(int(found[near].max()) + 1)
            self._slots[found[near]] = stands[near]

    def drop(self, number: int) -> None:
        """Take a number away."""
        if 0 <= number < len(self._slots):
            self._slots[number] = -1

    def where(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where numbers stand, -1 where they have no slot.  int64 [n] -> int64 [n]"""
        near = (numbers >= 0) & (numbers < len(self._slots))
        if near.all():
            return self._slots[numbers]
        found = np.full(len(numbers), -1, dtype=np.int64)
        found[near] = self._slots[numbers[near]]
        return found

    def _reach(self, count: int) -> None:
        if count > len(self._slots):
            longer = np.full(max(count, 2 * len(self._slots)), -1, dtype=np.int64)
            longer[: len(self._slots)] = self._slots
            self._slots = longer
