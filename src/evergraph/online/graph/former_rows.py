"""What rows of an array were, for those who go on reading it as it was while it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evergraph.online.graph.growing_array import GrowingArray

Array = npt.NDArray[Any]


class Link:
    """One change: which rows it was of, what they were, and the link of the change after it.

    The last link is empty until the next change comes.
    """

    __slots__ = ("following", "positions", "rows")

    def __init__(self) -> None:
        self.following: Link | None = None
        self.positions: Array = np.empty(0, np.int64)
        self.rows: Array = np.empty(0)


class FormerRows:
    """A chain of what rows were, noted before they are changed.

    Whoever holds a link sees all that was noted since; links that nobody holds are gone. One thread
    notes, any number read without a lock: a row is copied first, and then looked for among those
    that were noted, so a row that was changed meanwhile is found there.

    >>> ages, former = np.array([30, 40]), FormerRows()
    >>> then = former.now
    >>> former.note(np.array([1]), ages[[1]])
    >>> ages[1] = 41
    >>> as_of(then, np.array([0, 1]), ages[[0, 1]])
    array([30, 40])
    """

    def __init__(self) -> None:
        self.now = Link()

    def note(self, positions: Array, rows: Array) -> None:
        """Note what rows are, before they are changed.  int64 [n], [n, ...]"""
        if not len(positions):
            return
        order = np.argsort(positions, kind="stable")
        link, following = self.now, Link()
        link.positions, link.rows = positions[order], rows[order]
        link.following = following  # the last step: who reads meanwhile sees all of it or nothing
        self.now = following


def as_of(link: Link, positions: Array, rows: Array) -> Array:
    """Put back what has changed since a link was the last, in a copy of rows; return it.

    positions: of the rows.  int64 [n], [n, ...]
    """
    left = np.ones(len(positions), dtype=bool)
    while (following := link.following) is not None:
        places = np.minimum(np.searchsorted(link.positions, positions), len(link.positions) - 1)
        found = left & (link.positions[places] == positions)
        if found.any():
            rows[found] = link.rows[places[found]]
            left &= ~found  # what was noted first is what it was then
        link = following
    return rows


@dataclass(frozen=True, eq=False)
class FrozenRows:
    """An array as it was when this was made; new rows may come meanwhile, and rows change.

    Attributes:
        array: the array, whose changes are noted.
        link: the last one then.
        length: how many rows there were.

    >>> ages, former = GrowingArray(dtype=np.int64), FormerRows()
    >>> ages.extend(2)
    >>> frozen = FrozenRows(ages, former.now, len(ages))
    >>> former.note(np.array([1]), ages.array[[1]])
    >>> ages.array[1] = 7
    >>> frozen.of(np.array([1, 0])), frozen.every()
    (array([0, 0]), array([0, 0]))
    """

    array: GrowingArray
    link: Link
    length: int

    def of(self, positions: Array) -> Array:
        """Return some rows as they were: a copy.  int64 [n] -> [n, ...]"""
        return as_of(self.link, positions, self.array.array[positions])

    def every(self) -> Array:
        """Return all rows as they were: a copy."""
        return self.of(np.arange(self.length))
