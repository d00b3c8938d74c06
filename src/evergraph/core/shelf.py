"""What several workers in one process need of the same thing, computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Shelf:
    """Keeps what was made of a thing, by how it was made, while the thing lives.

    >>> class Thing: ...
    >>> shelf, thing = Shelf(), Thing()
    >>> shelf.take(thing, "name", lambda: "made"), shelf.take(thing, "name", lambda: "made again")
    ('made', 'made')
    """

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()

    def take(self, thing: object, way: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned the first time this was asked for."""
        made = self._kept.setdefault(thing, {})
        if way not in made:
            made[way] = make()
        found: T = made[way]
        return found
