"""Who does the work: this process, or many; an engine by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError

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


EngineName = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(EngineName)
# Of a memory limit, what Ray's store on this machine may take of it.
STORE_SHARE = 0.3


def check_engine(name: str, address: str | None) -> None:
    """Raise unless there is such an engine and it takes an address."""
    check_choice("engine", name, ENGINES)
    if address is not None and name != "ray":
        raise ConfigurationError(
            f"address {address!r} was given with engine {name!r}: only engine 'ray' takes one"
        )


def make_engine(
    name: str = "local",
    *,
    address: str | None = None,
    workers: int | None = None,
    memory: int | None = None,
) -> Engine:
    """Return the engine called ``name``.

    address, workers: see ``RayEngine``; memory: the most that may be held on this machine, in
    bytes, of which Ray's store takes its share where it is started here.

    >>> make_engine("local").workers
    1
    """
    check_engine(name, address)
    if name == "local":
        return LocalEngine()
    from evergraph.core.ray_engine import RayEngine

    return RayEngine(address, workers, store=None if memory is None else _store(memory))


def _store(memory: int) -> int:
    return max(int(STORE_SHARE * memory), 80_000_000)  # less than this, Ray refuses
