"""Who does the work: this process, or many; an engine by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError

Work = Callable[..., Any]


class Held(Protocol):
    """What work gave, kept on the machine where it was done until other work asks for it."""

    def get(self) -> Any:
        """Return the value; for work that is handed it, not for who hands it on."""
        ...


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
        near: Sequence[Path | None] | None = None,
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order, as each is there.

        ``work`` is a function of a module and a pure one: it may run again if a worker dies.
        shared: tensors, arrays, paths and plain values, handed to a worker once. near: a file or
        folder that each item reads, so that it is worked on where that is.
        """
        ...

    def hold(
        self,
        work: Work,
        items: Sequence[Any],
        *,
        shared: Mapping[str, Any] | None = None,
        near: Sequence[Path | None] | None = None,
    ) -> Iterator[Held]:
        """Do what ``map`` does, but leave every result where it was made.

        What is yielded may stand anywhere in the items, or in what is shared, of later work, which
        gets the value from there: it never passes through this process.
        """
        ...


@dataclass(frozen=True, eq=False)
class Here:
    """A value in this process."""

    value: Any

    def get(self) -> Any:
        """Return the value."""
        return self.value


class LocalEngine:
    """Does one item after the other, in this process, on all of its threads.

    >>> list(LocalEngine().map(pow, [2, 3], shared={"exp": 2}))
    [4, 9]
    """

    workers = 1
    machines = 1

    def map(
        self,
        work: Work,
        items: Sequence[Any],
        *,
        shared: Mapping[str, Any] | None = None,
        near: Sequence[Path | None] | None = None,
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order; all is near here."""
        return (work(item, **(shared or {})) for item in items)

    def hold(
        self,
        work: Work,
        items: Sequence[Any],
        *,
        shared: Mapping[str, Any] | None = None,
        near: Sequence[Path | None] | None = None,
    ) -> Iterator[Held]:
        """Yield ``work(item, **shared)`` for every item, in order, as what holds it."""
        return map(Here, self.map(work, items, shared=shared, near=near))


EngineName = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(EngineName)
# Of a memory limit, what Ray's store on this machine may take of it.
STORE_SHARE = 0.3


def check_engine(name: str, address: str | None, threads: int | None = None) -> None:
    """Raise unless there is such an engine and it takes an address, or threads of its workers."""
    check_choice("engine", name, ENGINES)
    for option, given in (("address", address), ("worker threads", threads)):
        if given is not None and name != "ray":
            raise ConfigurationError(
                f"{option} {given!r} was given with engine {name!r}: only engine 'ray' takes one"
            )


def make_engine(
    name: str = "local",
    *,
    address: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Engine:
    """Return the engine called ``name``.

    address, workers, threads: see ``RayEngine``; memory: the most that may be held on this
    machine, in bytes, of which Ray's store takes its share where it is started here.

    >>> make_engine("local").workers
    1
    """
    check_engine(name, address, threads)
    if name == "local":
        return LocalEngine()
    from evergraph.core.ray_engine import RayEngine

    store = None if memory is None else _store(memory)
    return RayEngine(address, workers, threads=threads, store=store)


def _store(memory: int) -> int:
    return max(int(STORE_SHARE * memory), 80_000_000)  # less than this, Ray refuses
