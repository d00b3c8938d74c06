"""Who does the work: this process, or many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Work = Callable[..., Any]


class Engine(Protocol):
    """Runs one function over many items, all of which share some arrays.

    The only thing that has to exist once for one machine and once for many: propagation, reach and
    statistics cut their work into items and know no more than this.
    """

    @property
    def workers(self) -> int:
        """How many items are worked on at a time."""
        ...

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order, as each is there.

        ``work`` is a function of a module and a pure one: it may run again if a worker dies.
        shared: tensors, arrays, paths and plain values, handed to a worker once.
        """
        ...


class LocalEngine:
    """Does one item after the other, in this process, on all of its threads.

    >>> list(LocalEngine().map(pow, [2, 3], shared={"exp": 2}))
    [4, 9]
    """

    workers = 1

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order."""
        return (work(item, **(shared or {})) for item in items)
