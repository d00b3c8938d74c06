"""Engines, which run work in this process or in many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from evergraph.core.errors import ConfigurationError, check_choice

if TYPE_CHECKING:
    from torch import Tensor

Work = Callable[..., Any]
EngineName = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(EngineName)


class Engine(Protocol):
    """Runs one function over many items that share some arrays.

    Only this differs between one machine and many: propagation, reach and statistics split their
    work into items and use this interface.
    """

    @property
    def workers(self) -> int:
        """Number of items worked on at a time."""
        ...

    @property
    def machines(self) -> int:
        """Number of machines they run on."""
        ...

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order, as results arrive.

        ``work`` is a pure, module-level function: it may run again if a worker dies.
        shared: tensors, arrays, paths and plain values, sent to a worker once.
        """
        ...


@dataclass(frozen=True, eq=False)
class ColumnSlice:
    """Some columns of an array; if it is dense, only these are sent to a worker.

    Attributes:
        first: index of the first of them in the whole array.

    >>> import torch
    >>> ColumnSlice(torch.arange(6).reshape(2, 3), 1, 3, first=1).sent().array
    tensor([[1, 2],
            [4, 5]])
    """

    array: Tensor
    start: int
    stop: int
    first: int

    def sent(self) -> ColumnSlice:
        """Return the same columns without the others."""
        taken = self.array[:, self.start : self.stop].contiguous()
        return ColumnSlice(taken, 0, self.stop - self.start, self.first)


class LocalEngine:
    """Processes items one after another in this process, with all of its threads.

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


def check_engine(name: str, address: str | None, threads: int | None = None) -> None:
    """Raise unless the engine exists and takes the options that are given."""
    check_choice("engine", name, ENGINES)
    for option, given in (("address", address), ("worker threads", threads)):
        if given is not None and name != "ray":
            raise ConfigurationError(f"{option} {given!r} needs engine 'ray', not {name!r}")
