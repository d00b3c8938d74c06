"""Who does the work: this process, or many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

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

    @property
    def machines(self) -> int:
        """On how many machines they are."""
        ...

    def map(
        self,
        work: Work,
        items: Sequence[Any],
        *,
        shared: Mapping[str, Any] | None = None,
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order, as each is there.

        ``work`` is a function of a module and a pure one: it may run again if a worker dies.
        shared: tensors, arrays, paths and plain values, handed to a worker once.
        """
        ...


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns of an array, of which no more than these are to travel if it is a dense one.

    Attributes:
        first: which column of the whole the first of them is.

    >>> import torch
    >>> Columns(torch.arange(6).reshape(2, 3), 1, 3, first=1).sent().array
    tensor([[1, 2],
            [4, 5]])
    """

    array: Tensor
    start: int
    stop: int
    first: int

    def sent(self) -> Columns:
        """Return the same columns without the others."""
        taken = self.array[:, self.start : self.stop].contiguous()
        return Columns(taken, 0, self.stop - self.start, self.first)


class LocalEngine:
    """Does one item after the other, in this process, on all of its threads.

    >>> list(LocalEngine().map(pow, [2, 3], shared={"exp": 2}))
    [4, 9]
    """

    workers = 1
    machines = 1

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order."""
        return (work(item, **(shared or {})) for item in items)


EngineName = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(EngineName)


def check_engine(name: str, address: str | None, threads: int | None = None) -> None:
    """Raise unless there is such an engine and it takes an address, or threads of its workers."""
    check_choice("engine", name, ENGINES)
    for option, given in (("address", address), ("worker threads", threads)):
        if given is not None and name != "ray":
            raise ConfigurationError(
                f"{option} {given!r} was given with engine {name!r}: only engine 'ray' takes one"
            )
