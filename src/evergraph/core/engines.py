"""An engine by its name."""

from __future__ import annotations

from typing import Literal, get_args

from evergraph.core.checks import check_choice
from evergraph.core.engine import Engine, LocalEngine
from evergraph.core.errors import ConfigurationError

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
